#include "parallel/pipeline/local_mail.h"

#include <utility>

#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"

namespace rankwise {

class LocalPostOffice::RankMail : public Mail {
 public:
  RankMail(LocalPostOffice& office, int rank)
      : Mail(rank, office.devices_[static_cast<size_t>(rank)]),
        office_(office) {}

  void Start(P2POp& transfer) override {
    const Address address = AddressOf(transfer);
    Letter& letter = office_.letters_[address];
    at::Tensor& mine = transfer.is_send ? letter.from : letter.to;
    TORCH_CHECK(!mine.defined(), "rank ", rank(), " started the message ",
                transfer.tag, " twice");
    mine = transfer.tensor;
    if (transfer.is_send) letter.sent.emplace(device());
    if (letter.from.defined() && letter.to.defined())
      office_.Copy(address, letter);
  }

 private:
  void Complete(P2POp& transfer) override {
    const auto found = office_.letters_.find(AddressOf(transfer));
    TORCH_CHECK(
        found != office_.letters_.end() && found->second.arrived.has_value(),
        "rank ", rank(), " waits for the message ", transfer.tag, " with rank ",
        transfer.peer,
        ", which that rank has not started; one thread cannot wait for "
        "itself");
    found->second.arrived->Block(CurrentStream(device()));
    if (++found->second.waits == 2) office_.letters_.erase(found);
  }

  Address AddressOf(const P2POp& transfer) const {
    return transfer.is_send ? Address(rank(), transfer.peer, transfer.tag)
                            : Address(transfer.peer, rank(), transfer.tag);
  }

  LocalPostOffice& office_;
};

LocalPostOffice::LocalPostOffice(std::vector<c10::Device> devices,
                                 StageStreams& streams)
    : devices_(std::move(devices)), streams_(streams) {
  for (const c10::Device& device : devices_) {
    departures_.emplace_back();
    if (!device.is_cpu()) departures_.back().push_back(streams_.Add(device));
  }
}

LocalPostOffice::~LocalPostOffice() = default;

std::unique_ptr<Mail> LocalPostOffice::MailOf(int rank) {
  return std::make_unique<RankMail>(*this, rank);
}

void LocalPostOffice::Copy(const Address& address, Letter& letter) {
  const auto [from, to, tag] = address;
  const c10::Device source = devices_[static_cast<size_t>(from)];
  const c10::Device target = devices_[static_cast<size_t>(to)];
  // ATen copies on the current stream of the source's device, and orders that
  // with the current stream of the target's on both ends
  // (aten/src/ATen/native/cuda/Copy.cu). On one device one stream does both.
  std::vector<c10::Stream> streams = streams_.Arrivals(target);
  if (source != target) {
    const auto& departure = departures_[static_cast<size_t>(from)];
    streams.insert(streams.end(), departure.begin(), departure.end());
  }
  if (!streams.empty()) letter.sent->Block(streams.back());
  const c10::MultiStreamGuard guard(streams);
  letter.to.copy_(letter.from, /*non_blocking=*/true);
  if (streams.size() > 1) Moment(streams.back()).Block(streams.front());
  letter.arrived.emplace(target);
}

}  // namespace rankwise
