// Faults of hosts and of the links between them, for
// //tests/faults:kill_campaign.
#ifndef RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_
#define RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_

#include <random>
#include <string>

#include "absl/status/status.h"
#include "tests/faults/campaign.h"

namespace rankwise {

// On two emulated hosts, with half of the ranks on each.
struct HostFault {
  const CampaignTrainer* trainer;
  Moment moment;
  bool is_gone;  // else its link goes down
  int host;

  std::string Describe() const;
};

HostFault DrawHostFault(std::mt19937_64& random);

// Why there can be no hosts on this machine; "": there can.
std::string WhyNoHosts();

// Trains until the fault, checks that the ranks that are left end within their
// bound and name the host or its ranks, starts the job again with --resume and
// checks its losses and files. *ended: what was seen.
absl::Status StrikeHost(const HostFault& fault, const std::string& dir,
                        std::string* ended);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_
