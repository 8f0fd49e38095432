#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "records/text_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// No machine has more; a typo must not allocate unbounded memory.
constexpr int32_t kHighestNumber = 1'000'000;

constexpr absl::string_view kDigits = "0123456789";

// Suffix of a pair's cell.
constexpr absl::string_view kOverlap = "OVERLAP_F_B";

// Returns why a cell is rejected, including cells that
// torch.distributed.pipelining accepts.
absl::string_view RejectionReason(absl::string_view cell) {
  if (absl::EndsWith(cell, kOverlap))
    return "an F and a B that overlap look like (0F3;3B1)OVERLAP_F_B";
  for (const absl::string_view kind : {"UNSHARD", "RESHARD", "REDUCE_GRAD"}) {
    if (absl::EndsWith(cell.substr(0, cell.find_last_not_of(kDigits) + 1),
                       kind))
      return "actions of sharded parameters are not supported; write the file "
             "with computation only";
  }
  return "not an action; actions look like 0F3 (stage 0, forward, "
         "micro-batch 3), with F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B";
}

absl::StatusOr<Action> ParseAction(absl::string_view cell) {
  const absl::string_view stage =
      cell.substr(0, cell.find_first_not_of(kDigits));
  const absl::string_view rest = cell.substr(stage.size());
  const size_t kind_length = rest.find_last_not_of(kDigits) + 1;
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
  return absl::InvalidArgumentError(RejectionReason(cell));
}

// Returns the actions of a cell: one, or the two of a pair.
absl::StatusOr<std::vector<Action>> ParseCell(absl::string_view cell) {
  absl::string_view pair = cell;
  if (!absl::ConsumePrefix(&pair, "(") ||
      !absl::ConsumeSuffix(&pair, kOverlap) ||
      !absl::ConsumeSuffix(&pair, ")")) {
    ASSIGN_OR_RETURN(const Action action, ParseAction(cell));
    return std::vector<Action>{action};
  }
  std::vector<Action> actions;
  for (const absl::string_view part : absl::StrSplit(pair, ';')) {
    ASSIGN_OR_RETURN(actions.emplace_back(), ParseAction(part));
  }
  if (actions.size() != 2 || actions[0].kind != ActionKind::kForward ||
      actions[1].kind != ActionKind::kBackward)
    return absl::InvalidArgumentError(RejectionReason(cell));
  actions[1].overlapped = true;
  return actions;
}

constexpr int kNoRank = -1;

// Adds `action` to the last rank of `schedule`, and the stages and
// micro-batches up to its own.
absl::Status AddAction(const Action& action, Schedule& schedule) {
  const int rank = schedule.num_ranks() - 1;
  if (action.stage >= schedule.num_stages())
    schedule.rank_of_stage.resize(action.stage + 1, kNoRank);
  int& home = schedule.rank_of_stage[action.stage];
  if (home != kNoRank && home != rank)
    return absl::InvalidArgumentError(
        absl::StrCat("row ", home + 1, " has stage ", action.stage,
                     " already; a stage is on one rank"));
  home = rank;
  schedule.num_micro_batches =
      std::max(schedule.num_micro_batches, action.micro_batch + 1);
  schedule.actions.back().push_back(action);
  return absl::OkStatus();
}

absl::Status AddCell(absl::string_view cell, Schedule& schedule) {
  ASSIGN_OR_RETURN(const std::vector<Action> actions, ParseCell(cell));
  for (const Action& action : actions) {
    RETURN_IF_ERROR(AddAction(action, schedule));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> ParseScheduleCsv(const std::string& path,
                                          absl::string_view text) {
  const absl::string_view rows = absl::StripTrailingAsciiWhitespace(text);
  if (rows.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the file is empty"));
  Schedule schedule;
  schedule.name = path;
  for (const absl::string_view row : absl::StrSplit(rows, '\n')) {
    schedule.actions.emplace_back();
    int column = 0;
    for (absl::string_view cell : absl::StrSplit(row, ',')) {
      ++column;
      cell = absl::StripAsciiWhitespace(cell);
      if (cell.empty()) continue;
      if (const absl::Status status = AddCell(cell, schedule); !status.ok())
        return absl::InvalidArgumentError(
            absl::StrCat(path, ", row ", schedule.num_ranks(), ", column ",
                         column, ": ", Quoted(cell), ": ", status.message()));
    }
  }
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    if (schedule.rank_of_stage[stage] == kNoRank)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no rank has stage ", stage, ", although stage ",
                       schedule.num_stages() - 1, " is there"));
  }
  return schedule;
}

absl::StatusOr<Schedule> ReadScheduleCsv(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (text.ok()) return ParseScheduleCsv(path, *text);
  return absl::Status(text.status().code(),
                      absl::StrCat("reading the schedule file ", path, ": ",
                                   text.status().message()));
}

std::string ToCsv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : ComputationOf(schedule).actions) {
    std::vector<std::string> cells;
    for (const Action& action : actions) {
      const std::string cell = ToString(action);
      if (action.overlapped)
        cells.back() =
            absl::StrCat("(", cells.back(), ";", cell, ")", kOverlap);
      else
        cells.push_back(cell);
    }
    absl::StrAppend(&text, absl::StrJoin(cells, ","), "\n");
  }
  return text;
}

absl::Status WriteScheduleCsv(const Schedule& schedule,
                              const std::string& path) {
  return ReplaceFile(path, [&](std::ostream& out) { out << ToCsv(schedule); });
}

}  // namespace rankwise
