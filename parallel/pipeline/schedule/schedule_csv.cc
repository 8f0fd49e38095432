#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// No machine has more; a typo's number must not ask for memory without end.
constexpr int32_t kHighestNumber = 1'000'000;

absl::string_view LeadingDigits(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() && absl::ascii_isdigit(text[length])) ++length;
  return text.substr(0, length);
}

// Why a cell that torch.distributed.pipelining knows is none for us.
absl::string_view ReasonAgainst(absl::string_view cell) {
  if (absl::EndsWith(cell, "OVERLAP_F_B"))
    return "an action that runs a forward and a backward at once is not "
           "supported; write the two actions in two cells";
  for (const absl::string_view kind : {"UNSHARD", "RESHARD", "REDUCE_GRAD"}) {
    if (absl::EndsWith(cell.substr(0, cell.find_last_not_of("0123456789") + 1),
                       kind))
      return "actions of sharded parameters are not supported; write the file "
             "with computation only";
  }
  return "it is no action; actions look like 0F3 (stage 0, forward, "
         "micro-batch 3), with F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B";
}

absl::StatusOr<Action> ParseAction(absl::string_view cell) {
  const absl::string_view stage = LeadingDigits(cell);
  const absl::string_view rest = cell.substr(stage.size());
  const size_t kind_length = rest.find_last_not_of("0123456789") + 1;
  const absl::string_view micro_batch = rest.substr(kind_length);
  for (int kind = 0; kind < kNumActionKinds; ++kind) {
    Action action;
    action.kind = static_cast<ActionKind>(kind);
    if (rest.substr(0, kind_length) != NameOf(action.kind)) continue;
    if (absl::SimpleAtoi(stage, &action.stage) &&
        absl::SimpleAtoi(micro_batch, &action.micro_batch) &&
        action.stage <= kHighestNumber && action.micro_batch <= kHighestNumber)
      return action;
  }
  return absl::InvalidArgumentError(ReasonAgainst(cell));
}

// Turns cells into a schedule, which grows with them.
class Builder {
 public:
  explicit Builder(const std::string& path) { schedule_.name = path; }

  absl::Status AddRow(absl::string_view row) {
    schedule_.actions.emplace_back();
    const std::vector<absl::string_view> cells = absl::StrSplit(row, ',');
    for (size_t column = 0; column < cells.size(); ++column) {
      const absl::string_view cell = absl::StripAsciiWhitespace(cells[column]);
      if (cell.empty()) continue;
      const absl::StatusOr<Action> action = ParseAction(cell);
      const absl::Status status = action.ok() ? Add(*action) : action.status();
      if (!status.ok())
        return absl::InvalidArgumentError(absl::StrCat(
            schedule_.name, ", row ", schedule_.num_ranks(), ", column ",
            column + 1, ": ", Quoted(cell), ": ", status.message()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Schedule> Finish() && {
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      if (schedule_.rank_of_stage[stage] == kNoRank)
        return absl::InvalidArgumentError(absl::StrCat(
            schedule_.name, ": no rank has stage ", stage, ", although stage ",
            schedule_.num_stages() - 1, " is there"));
    }
    return std::move(schedule_);
  }

 private:
  static constexpr int kNoRank = -1;

  absl::Status Add(const Action& action) {
    const int rank = schedule_.num_ranks() - 1;
    if (action.stage >= schedule_.num_stages())
      schedule_.rank_of_stage.resize(action.stage + 1, kNoRank);
    int& home = schedule_.rank_of_stage[action.stage];
    if (home != kNoRank && home != rank)
      return absl::InvalidArgumentError(
          absl::StrCat("row ", home + 1, " has stage ", action.stage,
                       " already; a stage is on one rank"));
    home = rank;
    schedule_.num_micro_batches =
        std::max(schedule_.num_micro_batches, action.micro_batch + 1);
    schedule_.actions.back().push_back(action);
    return absl::OkStatus();
  }

  Schedule schedule_;
};

}  // namespace

absl::StatusOr<Schedule> ParseScheduleCsv(const std::string& path,
                                          absl::string_view text) {
  const absl::string_view rows = absl::StripTrailingAsciiWhitespace(text);
  if (rows.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the file is empty"));
  Builder builder(path);
  for (const absl::string_view row : absl::StrSplit(rows, '\n')) {
    RETURN_IF_ERROR(builder.AddRow(row));
  }
  return std::move(builder).Finish();
}

absl::StatusOr<Schedule> ReadScheduleCsv(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    const int error = errno;
    return absl::ErrnoToStatus(
        error == 0 ? EIO : error,
        absl::StrCat("reading the schedule file ", path));
  }
  return ParseScheduleCsv(path, text.str());
}

std::string ToCsv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : ComputationOf(schedule).actions) {
    absl::StrAppend(&text,
                    absl::StrJoin(actions, ",",
                                  [](std::string* out, const Action& action) {
                                    absl::StrAppend(out, ToString(action));
                                  }),
                    "\n");
  }
  return text;
}

absl::Status WriteScheduleCsv(const Schedule& schedule,
                              const std::string& path) {
  return ReplaceFile(path, [&](std::ostream& out) { out << ToCsv(schedule); });
}

}  // namespace rankwise
