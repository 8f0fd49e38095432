#include "parallel/comm/flight_recorder_summary.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using Json = nlohmann::json;

enum class State { kCalled, kStarted, kDone };

struct Call {
  State state = State::kCalled;
  std::string name;    // "all_reduce"
  std::string shapes;  // "[[4],[2]]"; "" without tensors
  std::string dtype;

  std::string Description() const {
    return shapes.empty() ? name
                          : absl::StrCat(name, " of ", shapes, " ", dtype);
  }
};

// c10d's number of a group in a process, its name, and "[0, 2]".
using GroupKey = std::tuple<int64_t, std::string, std::string>;

struct Group {
  std::map<int, std::map<int64_t, Call>> collectives;      // by rank and number
  std::vector<std::pair<int, std::string>> open_messages;  // by rank
};

std::string DtypeOf(const Json& entry) {
  static const auto& names = *new std::map<std::string, std::string>{
      {"Float", "float32"},     {"Double", "float64"}, {"Half", "float16"},
      {"BFloat16", "bfloat16"}, {"Byte", "uint8"},     {"Int", "int32"},
      {"Long", "int64"}};
  const Json dtypes = entry.value("input_dtypes", Json::array());
  if (dtypes.empty()) return "";
  const std::string name = dtypes[0].get<std::string>();
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

Call CallOf(const Json& entry) {
  Call call;
  // Gloo retires what is done, and leaves the state as it was.
  const std::string state = entry.value("state", "");
  if (state == "completed" || entry.value("retired", false)) {
    call.state = State::kDone;
  } else if (state == "started") {
    call.state = State::kStarted;
  }
  const std::string name = entry.value("profiling_name", "");
  call.name = name.substr(name.find(':') + 1);  // "nccl:all_reduce"
  const Json sizes = entry.value("input_sizes", Json::array());
  if (!sizes.empty()) call.shapes = sizes.dump();
  call.dtype = DtypeOf(entry);
  return call;
}

GroupKey KeyOf(const Json& dump, const Json& entry) {
  const Json group = entry.value("process_group", Json::array());
  const std::string name = group.empty() ? "" : group[0].get<std::string>();
  std::string ranks;
  const Json config = dump.value("pg_config", Json::object());
  if (config.contains(name)) ranks = config[name].value("ranks", "");
  return {entry.value("pg_id", int64_t{0}), name, ranks};
}

// Throws Json::exception.
void AddDump(int rank, const std::string& text,
             std::map<GroupKey, Group>& groups) {
  const Json dump = Json::parse(text);
  for (const Json& entry : dump.value("entries", Json::array())) {
    Group& group = groups[KeyOf(dump, entry)];
    const Call call = CallOf(entry);
    if (!entry.value("is_p2p", false)) {
      group.collectives[rank][entry.value("collective_seq_id", int64_t{0})] =
          call;
    } else if (call.state != State::kDone) {
      group.open_messages.emplace_back(rank, call.Description());
    }
  }
}

// The ranks of the group whose dumps are there: those that the dumps name, or,
// where they name none (Gloo's), all.
std::vector<int> RanksOf(const GroupKey& key, const std::set<int>& known) {
  absl::string_view text = std::get<2>(key);
  std::vector<int> ranks;
  for (absl::string_view field :
       absl::StrSplit(text, absl::ByAnyChar("[], "), absl::SkipEmpty())) {
    int rank = 0;
    if (absl::SimpleAtoi(field, &rank) && known.count(rank) > 0) {
      ranks.push_back(rank);
    }
  }
  return ranks.empty() ? std::vector<int>(known.begin(), known.end()) : ranks;
}

using Calls = std::map<int64_t, Call>;

// The last of the calls before the first that is not done.
int64_t DoneThrough(const Calls& calls) {
  int64_t through = 0;
  for (const auto& [number, call] : calls) {
    if (call.state != State::kDone) return number - 1;
    through = number;
  }
  return through;
}

std::string SayOf(const Calls& calls, int64_t number) {
  const auto found = calls.find(number);
  if (found == calls.end()) {
    if (calls.empty()) return "has not come to it, nor called anything";
    const auto& [last, call] = *calls.rbegin();
    if (last > number) return absl::StrCat("is past it, at #", last);
    return absl::StrCat("has not come to it, its last is #", last, ", ",
                        call.Description());
  }
  const char* how = found->second.state == State::kDone      ? "is done with "
                    : found->second.state == State::kStarted ? "is in "
                                                             : "has called ";
  return how + found->second.Description();
}

bool ShapesMustAgree(const std::string& name) {
  return name == "all_reduce" || name == "broadcast" || name == "reduce";
}

bool Differ(const std::vector<const Call*>& calls) {
  for (const Call* call : calls) {
    const Call& first = *calls[0];
    if (call->name != first.name) return true;
    if (ShapesMustAgree(first.name) &&
        (call->shapes != first.shapes || call->dtype != first.dtype)) {
      return true;
    }
  }
  return false;
}

// "rank 0 has called", "ranks 0, 2 have called".
std::string Plural(const std::string& text) {
  std::string plural = text;
  if (absl::StartsWith(text, "has ")) plural = "have " + text.substr(4);
  if (absl::StartsWith(text, "is ")) plural = "are " + text.substr(3);
  return absl::StrReplaceAll(plural, {{", its last", ", their last"}});
}

std::string RankList(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

std::string NameOf(const GroupKey& key) {
  const auto& [number, name, ranks] = key;
  std::string text = name.empty() ? absl::StrCat("group ", number)
                                  : absl::StrCat("group ", name);
  if (ranks.size() > 2) {
    absl::StrAppend(&text, " (ranks ", ranks.substr(1, ranks.size() - 2), ")");
  }
  return text;
}

// What the ranks say of call `number`; those that say the same together.
std::string Positions(const Group& group, const std::vector<int>& ranks,
                      int64_t number) {
  static const Calls& none = *new Calls;
  std::vector<std::pair<std::string, std::vector<int>>> said;
  std::vector<const Call*> calls;
  bool any_come = false;
  for (const int rank : ranks) {
    const auto found = group.collectives.find(rank);
    const Calls& own = found == group.collectives.end() ? none : found->second;
    const auto call = own.find(number);
    if (call != own.end()) calls.push_back(&call->second);
    any_come |= !own.empty() && own.rbegin()->first >= number;
    const std::string text = SayOf(own, number);
    const auto same = std::find_if(said.begin(), said.end(), [&](auto& entry) {
      return entry.first == text;
    });
    if (same != said.end()) {
      same->second.push_back(rank);
    } else {
      said.push_back({text, {rank}});
    }
  }
  if (!any_come) return "";
  std::vector<std::string> parts;
  for (const auto& [text, who] : said) {
    parts.push_back(absl::StrCat(RankList(who), " ",
                                 who.size() == 1 ? text : Plural(text)));
  }
  if (Differ(calls)) parts.push_back("these are different calls");
  return absl::StrJoin(parts, "; ");
}

// "" for a group that has finished all that its ranks have called.
std::string SentenceOf(const GroupKey& key, const Group& group,
                       const std::set<int>& known) {
  const std::vector<int> ranks = RanksOf(key, known);
  int64_t done = INT64_MAX;
  for (const int rank : ranks) {
    const auto calls = group.collectives.find(rank);
    done = std::min(done, calls == group.collectives.end()
                              ? 0
                              : DoneThrough(calls->second));
  }
  const std::string positions = Positions(group, ranks, done + 1);
  if (positions.empty()) return "";
  return absl::StrCat(
      NameOf(key), ": ",
      done > 0 ? absl::StrCat("#", done, " is done everywhere; ") : "", "#",
      done + 1, ": ", positions);
}

}  // namespace

std::vector<std::string> SummarizeFlightRecorders(
    const std::map<int, std::string>& dumps, int world_size) {
  std::map<GroupKey, Group> groups;
  std::set<int> known;
  std::vector<int> unknown;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto dump = dumps.find(rank);
    try {
      if (dump == dumps.end()) throw std::out_of_range("no dump");
      AddDump(rank, dump->second, groups);
      known.insert(rank);
    } catch (const std::exception&) {
      unknown.push_back(rank);
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [key, group] : groups) {
    std::string sentence = SentenceOf(key, group, known);
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
    for (const auto& [rank, message] : group.open_messages) {
      sentences.push_back(absl::StrCat(NameOf(key), ": rank ", rank,
                                       " has not finished ", message));
    }
  }
  if (sentences.empty() && !known.empty()) {
    sentences.push_back(groups.empty()
                            ? "nothing is recorded (TORCH_FR_BUFFER_SIZE=0 "
                              "turns the recorders off)"
                            : "all that was called is done");
  }
  if (!unknown.empty()) {
    sentences.push_back("no record of " + RankList(unknown));
  }
  return sentences;
}

std::string TrimFlightRecorder(const std::string& text,
                               size_t calls_per_group) {
  Json dump = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!dump.is_object()) return "";
  const Json entries = dump.value("entries", Json::array());
  std::map<int64_t, size_t> left;  // by group, from the last call on
  Json kept = Json::array();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (left[entry->value("pg_id", int64_t{0})]++ < calls_per_group) {
      kept.push_back(*entry);
    }
  }
  std::reverse(kept.begin(), kept.end());
  dump["entries"] = std::move(kept);
  return dump.dump();
}

}  // namespace rankwise
