// Faults of hosts and of the links between them, for
// //tests/faults:kill_campaign.
#ifndef RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_
#define RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_

#include <random>
#include <string>

#include "absl/status/status.h"
#include "tests/faults/campaign.h"

namespace rankwise {

// A fault on two emulated hosts with half of the ranks on each.
struct HostFault {
  const CampaignTrainer* trainer;
  Moment moment;
  bool is_gone;  // otherwise its link goes down
  int host;

  std::string Describe() const;
};

HostFault DrawHostFault(std::mt19937_64& random);

// Returns why this machine does not permit hosts; "" if it does.
std::string WhyNoHosts();

// Trains until the fault, checks that the remaining ranks end within their time
// limit and name the host or its ranks, resumes the job with --resume and
// checks its losses and files. Sets *ended to a description of the outcome.
absl::Status StrikeHost(const HostFault& fault, const std::string& dir,
                        std::string* ended);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_CLUSTER_HOST_FAULTS_H_
