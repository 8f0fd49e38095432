// Faults of parameter servers and their workers, for
// //tests/faults:kill_campaign.
#ifndef RANKWISE_TESTS_FAULTS_SERVER_FAULTS_H_
#define RANKWISE_TESTS_FAULTS_SERVER_FAULTS_H_

#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace rankwise {

// A job of one or two servers and three workers, with a model of two million
// parameters, one rank of which is killed or stopped.
struct ServerFault {
  const char* backend;
  const char* consistency;
  int signal;  // SIGKILL or SIGSTOP
  bool of_a_server;
  int servers;
  int rank;
  int after_steps;
  absl::Duration delay;

  std::string Describe() const;
};

// Faults 0 to 23, and every further 24, cover all combinations of signal, kind
// of rank, consistency and backend; the other fields are random.
ServerFault DrawServerFault(int number, std::mt19937_64& random);

// Checks what docs/parameter_server.md promises: a lost worker is reported, the
// others finish their training, and the job returns 0; a lost server is named,
// and the job ends with another code. The report comes within 1 s after
// SIGKILL, and within the collective timeout and 2 s after SIGSTOP, each plus
// `slack`. No process is left. Sets *ended to a description of the outcome.
absl::Status StrikeServerJob(const ServerFault& fault, absl::Duration slack,
                             const std::string& dir, std::string* ended);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_FAULTS_SERVER_FAULTS_H_
