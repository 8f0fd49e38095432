#include "parallel/launch/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/launch/network.h"

namespace rankwise {
namespace {

using AddressList = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

AddressList AllAddresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return AddressList(first, freeifaddrs);
}

// Returns "" unless the address is of `family` and valid on other interfaces.
std::string TextOf(const sockaddr* address, int family) {
  if (address == nullptr || address->sa_family != family) return "";
  if (family == AF_INET6 &&
      IN6_IS_ADDR_LINKLOCAL(
          &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)) {
    return "";
  }
  const socklen_t length =
      family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

}  // namespace

std::vector<NetworkInterface> NetworkInterfaces() {
  const AddressList all = AllAddresses();
  std::vector<NetworkInterface> interfaces;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = all.get(); each != nullptr;
         each = each->ifa_next) {
      const std::string address = TextOf(each->ifa_addr, family);
      const bool is_known =
          absl::c_any_of(interfaces, [each](const NetworkInterface& other) {
            return other.name == each->ifa_name;
          });
      if ((each->ifa_flags & IFF_UP) == 0 || address.empty() || is_known)
        continue;
      interfaces.push_back({each->ifa_name, address});
    }
  }
  return interfaces;
}

NetworkInterface InterfaceWith(const std::string& address) {
  const AddressList all = AllAddresses();
  for (const ifaddrs* each = all.get(); each != nullptr;
       each = each->ifa_next) {
    if (address == TextOf(each->ifa_addr, AF_INET) ||
        address == TextOf(each->ifa_addr, AF_INET6)) {
      return {each->ifa_name, address};
    }
  }
  return {"", address};
}

absl::StatusOr<std::string> LoopbackAddress() {
  const AddressList all = AllAddresses();
  for (const auto& [family, loopback] :
       {std::pair(AF_INET, "127.0.0.1"), std::pair(AF_INET6, "::1")}) {
    for (const ifaddrs* each = all.get(); each != nullptr;
         each = each->ifa_next) {
      if ((each->ifa_flags & IFF_UP) != 0 &&
          TextOf(each->ifa_addr, family) == loopback) {
        return std::string(loopback);
      }
    }
  }
  return absl::UnavailableError(
      "the loopback interface is down: no interface that is up has the address "
      "127.0.0.1 or ::1, through which the processes of this machine reach "
      "each other; bring it up: ip link set lo up");
}

std::string NetworkIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  const std::string network =
      std::filesystem::read_symlink("/proc/self/ns/net", none).string();
  return boot.empty() ? HostName() : absl::StrCat(boot, " ", network);
}

}  // namespace rankwise
