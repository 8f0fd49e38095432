#include "parallel/comm/backends/gloo_address.h"

#include <cstdint>
#include <exception>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/launch/interfaces.h"
#include "parallel/launch/network.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr char kBetweenFields[] = "|";

std::string InterfacesHere() {
  return absl::StrJoin(
      NetworkInterfaces(), ", ",
      [](std::string* text, const NetworkInterface& interface) {
        absl::StrAppend(text, interface.name, " (", interface.address, ")");
      });
}

// Returns the interface `name`; its address is "" if it has none.
NetworkInterface InterfaceCalled(const std::string& name) {
  for (const NetworkInterface& each : NetworkInterfaces()) {
    if (each.name == name) return each;
  }
  return {name, ""};
}

// Returns the interface that leads to `host`, or the loopback if unknown.
NetworkInterface InterfaceTowards(const std::string& host) {
  return InterfaceWith(LocalAddressTowards(host).value_or(
      LoopbackAddress().value_or("127.0.0.1")));
}

NetworkInterface FirstChoice(const RankEnv& env) {
  if (!env.network_interface.empty())
    return InterfaceCalled(env.network_interface);
  return InterfaceTowards(env.master_addr.empty() ? HostName()
                                                  : env.master_addr);
}

// For a rank on the machine to which the other ranks' first choices lead.
NetworkInterface SecondChoice(const NetworkInterface& first,
                              const std::string& network,
                              const std::vector<GlooAddress>& choices) {
  for (const GlooAddress& other : choices) {
    if (other.network == network || IsLoopbackAddress(other.address)) continue;
    return InterfaceTowards(other.address);
  }
  // No rank knows of another machine, as after meeting through a file.
  const bool is_alone =
      absl::c_all_of(choices, [&network](const GlooAddress& other) {
        return other.network == network;
      });
  if (is_alone) return first;
  for (const NetworkInterface& each : NetworkInterfaces()) {
    if (!IsLoopbackAddress(each.address)) return each;
  }
  return first;
}

// Publishes `own` under `topic`; returns the entries of all ranks of the group.
std::vector<GlooAddress> Exchange(const BackendRequest& request,
                                  const std::string& topic,
                                  const NetworkInterface& own) {
  const auto key = [&topic](int rank) {
    return absl::StrCat(topic, "/", rank);
  };
  request.store->set(key(request.place.rank),
                     absl::StrJoin({HostName(), NetworkIdentity(), own.name,
                                    own.address, InterfacesHere()},
                                   kBetweenFields));
  std::vector<GlooAddress> all;
  for (int rank = 0; rank < request.place.size(); ++rank) {
    std::vector<std::string> fields =
        absl::StrSplit(request.store->get_to_str(key(rank)), kBetweenFields);
    fields.resize(5);
    all.push_back({request.place.ranks[static_cast<size_t>(rank)], fields[0],
                   fields[1], fields[2], fields[3], fields[4]});
  }
  return all;
}

// Waits for all ranks to read the addresses, before their common failure ends
// the process that serves the store.
void AwaitReaders(const BackendRequest& request) {
  constexpr char kReaders[] = "readers";
  const Deadline deadline(absl::Seconds(2));
  try {
    int64_t readers = request.store->add(kReaders, 1);
    while (readers < request.place.size() && !deadline.passed()) {
      absl::SleepFor(absl::Milliseconds(5));
      readers = request.store->add(kReaders, 0);
    }
  } catch (const std::exception&) {
    // The server has ended: this rank was the last to read.
  }
}

std::string RankOn(const GlooAddress& address) {
  return absl::StrCat("rank ", address.rank, " on ", address.host);
}

absl::Status Refuse(const GlooAddress& address, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      why,
      "; name the interface that connects the machines in GLOO_SOCKET_IFNAME: ",
      address.host, " has ", address.others));
}

}  // namespace

std::string DescribeGlooAddress(const GlooAddress& address) {
  return absl::StrCat("rank ", address.rank, " at ", address.address, " (",
                      address.interface, " of ", address.host, ")");
}

absl::Status CheckGlooAddresses(const std::vector<GlooAddress>& addresses) {
  std::map<std::string, const GlooAddress*> owners;
  for (const GlooAddress& each : addresses) {
    if (each.address.empty()) {
      return Refuse(
          each, absl::StrCat(RankOn(each), " has no interface ", each.interface,
                             " that is up and has an address"));
    }
    const auto stranger =
        absl::c_find_if(addresses, [&each](const GlooAddress& other) {
          return other.network != each.network;
        });
    if (stranger != addresses.end() && IsLoopbackAddress(each.address)) {
      return Refuse(each,
                    absl::StrCat(DescribeGlooAddress(each),
                                 " cannot be reached by ", RankOn(*stranger)));
    }
    const GlooAddress* const owner =
        owners.emplace(each.address, &each).first->second;
    if (owner->network == each.network) continue;
    return Refuse(each, absl::StrCat(DescribeGlooAddress(*owner), " and ",
                                     DescribeGlooAddress(each),
                                     " have the same address on two machines"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GlooAddress>> AgreeOnGlooAddresses(
    const BackendRequest& request) {
  const RankEnv& env = request.env;
  NetworkInterface own = FirstChoice(env);
  const std::vector<GlooAddress> choices =
      Exchange(request, "first_choice", own);
  if (env.network_interface.empty() && IsLoopbackAddress(own.address))
    own = SecondChoice(own, NetworkIdentity(), choices);
  std::vector<GlooAddress> addresses = Exchange(request, "address", own);
  const absl::Status checked = CheckGlooAddresses(addresses);
  if (checked.ok()) return addresses;
  AwaitReaders(request);
  return checked;
}

}  // namespace rankwise
