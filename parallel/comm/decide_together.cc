#include "parallel/comm/decide_together.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

constexpr char kVerdict[] = "verdict";

template <typename Part>
std::string Key(const std::string& topic, const Part& part) {
  return absl::StrCat(topic, "/", part);
}

// The first rank that has not published its value; if all have, rank 0, which
// has not published the decision.
int FirstSilent(c10d::Store& store, const std::string& topic, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    if (!store.check({Key(topic, rank)})) return rank;
  }
  return 0;
}

absl::Status ExplainSilence(c10d::Store& store, const std::string& topic,
                            const RankEnv& env, const std::string& error) {
  try {
    const int silent = FirstSilent(store, topic, env.world_size);
    const std::string what =
        absl::StrCat("rank ", silent, " arrived but then stopped answering");
    ReportBlame(store, env.rank, {{silent, what}});
    return absl::UnavailableError(absl::StrCat(
        "rank ", env.rank, " of ", env.world_size, ": ", what, " (", error,
        "): it is suspended or hangs; see what it prints"));
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", env.rank, " of ", env.world_size,
        " lost the connection to the store (", error,
        "); check the process that serves it, rank 0 or the launcher"));
  }
}

}  // namespace

absl::StatusOr<std::string> DecideTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<std::string(const std::vector<std::string>&)>& decide) {
  try {
    store.set(Key(topic, env.rank), own);
    if (env.rank == 0) {
      std::vector<std::string> all;
      for (int rank = 0; rank < env.world_size; ++rank)
        all.push_back(store.get_to_str(Key(topic, rank)));
      store.set(Key(topic, kVerdict), decide(all));
    }
    return store.get_to_str(Key(topic, kVerdict));
  } catch (const std::exception& error) {
    return ExplainSilence(store, topic, env, PlainMessage(error));
  }
}

absl::Status JudgeTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<absl::Status(const std::vector<std::string>&)>& judge) {
  constexpr char kGood[] = "ok";
  ASSIGN_OR_RETURN(const std::string verdict,
                   DecideTogether(store, topic, env, own, [&](const auto& all) {
                     const absl::Status judged = judge(all);
                     return judged.ok() ? kGood : std::string(judged.message());
                   }));
  return verdict == kGood ? absl::OkStatus()
                          : absl::InvalidArgumentError(verdict);
}

}  // namespace rankwise
