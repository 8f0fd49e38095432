// Representations of a network: JSON, a table, the flags of
// //parallel/pipeline:show and the file of ASTRA-sim.

// Makes the JSON library's errors include the JSON pointer of the value.
#define JSON_DIAGNOSTICS 1

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/text/json_keys.h"
#include "analysis/text/text_table.h"
#include "nlohmann/json.hpp"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {

// The form of docs/cost_model.md. The JSON library finds these functions by
// name; they throw Json::exception for invalid files.

using Json = nlohmann::ordered_json;

static void to_json(Json& json, const Interval& interval) {
  json = Json::array({interval.low, interval.high});
}

static void to_json(Json& json, const CostPoint& point) {
  json = {{"bytes", point.bytes},
          {"median_seconds", point.median_seconds},
          {"interval", point.interval}};
}

static void to_json(Json& json, const CostLine& line) {
  json = {{"alpha_seconds", line.alpha_seconds},
          {"alpha_interval", line.alpha_interval},
          {"beta_seconds_per_byte", line.beta_seconds_per_byte},
          {"beta_interval", line.beta_interval}};
}

static void to_json(Json& json, const CostCurve& curve) {
  json = {{"world_size", curve.world_size},
          {"hosts", curve.hosts},
          {"launches", curve.launches},
          {"bus_factor", curve.bus_factor},  // NaN becomes null
          {"median_relative_error", curve.median_relative_error},
          {"line", curve.line},
          {"points", curve.points}};
}

static void to_json(Json& json, const CollectiveCosts& costs) {
  json = {{"collective", costs.collective},
          {"growth", std::string(GrowthName(costs.growth))},
          {"growth_is_assumed", costs.growth_is_assumed},
          {"curves", costs.curves}};
}

// Throws an error that names the requirement unless `ok`.
static void Require(bool ok, const Json& json, const char* what) {
  if (!ok) throw Json::other_error::create(599, what, &json);
}

// Larger values are not valid times or sizes, and could make results infinite.
static constexpr double kLargestNumber = 1e18;
static constexpr int64_t kMostRanks = 1'000'000'000;

static void ReadNumber(const Json& json, double& number) {
  json.get_to(number);
  Require(number >= 0 && number <= kLargestNumber, json,
          "must be a number that is not negative, and at most 1e18");
}

// Texts are printed to the terminal.
static void ReadText(const Json& json, std::string& text) {
  json.get_to(text);
  Require(absl::c_none_of(text, absl::ascii_iscntrl), json,
          "must not hold control characters");
}

static void from_json(const Json& json, Interval& interval) {
  Require(json.is_array() && json.size() == 2, json,
          "must be a list of two numbers");
  ReadNumber(json[0], interval.low);
  ReadNumber(json[1], interval.high);
  Require(interval.low <= interval.high, json, "must not fall");
}

static void from_json(const Json& json, CostPoint& point) {
  ReadNumber(json.at("bytes"), point.bytes);
  ReadNumber(json.at("median_seconds"), point.median_seconds);
  const Json& interval = json.at("interval");
  interval.get_to(point.interval);
  Require(point.interval.low <= point.median_seconds &&
              point.median_seconds <= point.interval.high,
          interval, "must hold the median_seconds");
  RefuseUnknownKeys(json, {"bytes", "median_seconds", "interval"});
}

static void from_json(const Json& json, CostLine& line) {
  ReadNumber(json.at("alpha_seconds"), line.alpha_seconds);
  json.at("alpha_interval").get_to(line.alpha_interval);
  ReadNumber(json.at("beta_seconds_per_byte"), line.beta_seconds_per_byte);
  json.at("beta_interval").get_to(line.beta_interval);
  RefuseUnknownKeys(json, {"alpha_seconds", "alpha_interval",
                           "beta_seconds_per_byte", "beta_interval"});
}

// Curves and points are searched by size.
template <typename T, typename Size>
static void ReadAscending(const Json& json, Size size, std::vector<T>& list) {
  json.get_to(list);
  const auto falls = [size](const T& a, const T& b) {
    return std::invoke(size, a) >= std::invoke(size, b);
  };
  Require(std::adjacent_find(list.begin(), list.end(), falls) == list.end(),
          json, "must be in the order of their sizes");
}

// Reads an optional field, which older files lack.
static void ReadCount(const Json& json, const char* name, int64_t& count) {
  const auto field = json.find(name);
  if (field == json.end()) return;
  Require(field->is_number_integer() && *field >= 0 && *field <= kMostRanks,
          *field, "must be an integer from 0 to 1e9");
  field->get_to(count);
}

static void from_json(const Json& json, CostCurve& curve) {
  const Json& world_size = json.at("world_size");
  Require(world_size.is_number_integer() && world_size > 1 &&
              world_size <= kMostRanks,
          world_size, "must be an integer above 1, and at most 1e9");
  world_size.get_to(curve.world_size);
  ReadCount(json, "hosts", curve.hosts);
  ReadCount(json, "launches", curve.launches);
  const auto bus_factor = json.find("bus_factor");
  if (bus_factor != json.end() && !bus_factor->is_null()) {
    ReadNumber(*bus_factor, curve.bus_factor);
  }
  ReadNumber(json.at("median_relative_error"), curve.median_relative_error);
  json.at("line").get_to(curve.line);
  ReadAscending(json.at("points"), &CostPoint::bytes, curve.points);
  RefuseUnknownKeys(json, {"world_size", "hosts", "launches", "bus_factor",
                           "median_relative_error", "line", "points"});
}

static void from_json(const Json& json, CollectiveCosts& costs) {
  ReadText(json.at("collective"), costs.collective);
  const Json& name = json.at("growth");
  const auto* growth = absl::c_find_if(kGrowths, [&](Growth known) {
    return name == std::string(GrowthName(known));
  });
  Require(growth != std::end(kGrowths), name,
          "must be flat, tree, ring or exchange");
  costs.growth = *growth;
  json.at("growth_is_assumed").get_to(costs.growth_is_assumed);
  const Json& curves = json.at("curves");
  ReadAscending(
      curves,
      [](const CostCurve& curve) {
        return std::pair(curve.world_size, curve.hosts);
      },
      costs.curves);
  Require(!costs.curves.empty(), curves, "must not be empty");
  RefuseUnknownKeys(json,
                    {"collective", "growth", "growth_is_assumed", "curves"});
}

static void ReadCollectives(const Json& json,
                            std::vector<CollectiveCosts>& collectives) {
  json.get_to(collectives);
  std::set<std::string> names;
  for (const CollectiveCosts& costs : collectives) {
    Require(names.insert(costs.collective).second, json,
            absl::StrCat(Quoted(costs.collective), " appears twice").c_str());
  }
}

static void from_json(const Json& json, NetworkModel& network) {
  ReadText(json.at("name"), network.name);
  ReadText(json.at("backend"), network.backend);
  ReadCollectives(json.at("collectives"), network.collectives);
  const auto across = json.find("across_hosts");
  if (across != json.end()) ReadCollectives(*across, network.across_hosts);
  RefuseUnknownKeys(json, {"format", "version", "name", "backend",
                           "collectives", "across_hosts"});
}

namespace {

constexpr char kFormat[] = "rankwise network";
constexpr int kVersion = 2;
constexpr double kAstraSimGigabyte = 1 << 30;

// An error code of the JSON library.
constexpr int kNumberOverflow = 406;

// Returns the error without the exception's name in brackets.
absl::Status Explained(const Json::exception& error) {
  const std::vector<std::string> parts =
      absl::StrSplit(error.what(), absl::MaxSplits("] ", 1));
  return absl::InvalidArgumentError(parts.back());
}

absl::Status NotANetwork(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "not a network file", why, ": expected a JSON object with \"format\": \"",
      kFormat, "\", as //analysis/cost_model:fit_network --json writes"));
}

// Whether arrays and objects are nested more than 100 deep: the JSON library
// copies them by recursion, which could exhaust the stack.
bool IsNestedTooDeeply(absl::string_view json) {
  constexpr int kDeepest = 100;
  int depth = 0;
  bool is_quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') is_quoted = !is_quoted;
    if (is_quoted) {
      if (c == '\\') ++i;  // may escape a quote
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepest) return true;
  }
  return false;
}

// Must not copy or print deeply nested values: the file is untrusted.
absl::Status CheckHead(const Json& json) {
  const auto format = json.find("format"), version = json.find("version");
  if (!json.is_object() || format == json.end() || *format != kFormat)
    return NotANetwork("");
  if (version != json.end() && *version == kVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "version: is ",
      version == json.end()          ? "missing"
      : version->is_number_integer() ? version->dump()
                                     : version->type_name(),
      ", and this program reads version ", kVersion,
      ": fit the records again by //analysis/cost_model:fit_network --json"));
}

// Returns the range of the measured sizes.
std::string RangeText(const CostCurve& curve) {
  if (curve.points.empty()) return "any";
  const double first = curve.points.front().bytes;
  const double last = curve.points.back().bytes;
  if (last == 0) return "-";
  return absl::StrCat(FormatBytes(std::llround(first)), " to ",
                      FormatBytes(std::llround(last)));
}

std::string Number(double value) { return absl::StrFormat("%.4g", value); }

std::string IntervalText(const Interval& interval, double unit) {
  return absl::StrFormat("%.3g..%.3g", interval.low / unit,
                         interval.high / unit);
}

std::string CountText(int64_t count) {
  return count == 0 ? "-" : absl::StrCat(count);
}

std::string PercentOf(double share) {
  return absl::StrFormat("%.1f", share * 100);
}

size_t WorldSizes(const CollectiveCosts& costs) {
  std::set<int64_t> sizes;
  for (const CostCurve& curve : costs.curves) sizes.insert(curve.world_size);
  return sizes.size();
}

// Returns a row per curve, and the growth of each collective.
std::string CostsText(const std::vector<CollectiveCosts>& collectives) {
  TextTable table({"collective", "ranks", "hosts", "launches", "measured",
                   "alpha us", "interval", "beta ns/B", "interval", "GB/s",
                   "off the line %", "between sizes %", "intervals are"},
                  1);
  for (const CollectiveCosts& costs : collectives) {
    for (const CostCurve& curve : costs.curves) {
      const CostLine& line = curve.line;
      table.AddRow({costs.collective, absl::StrCat(curve.world_size),
                    CountText(curve.hosts), CountText(curve.launches),
                    RangeText(curve), Number(line.alpha_seconds * 1e6),
                    IntervalText(line.alpha_interval, 1e-6),
                    Number(line.beta_seconds_per_byte * 1e9),
                    IntervalText(line.beta_interval, 1e-9),
                    line.beta_seconds_per_byte > 0
                        ? Number(1e-9 / line.beta_seconds_per_byte)
                        : "-",
                    PercentOf(curve.median_relative_error),
                    PercentOf(curve.InterpolationError()),
                    IntervalKind(curve.Conditions())});
    }
  }
  std::string text = absl::StrCat(table.ToString(), "\n");
  for (const CollectiveCosts& costs : collectives) {
    absl::StrAppend(&text, costs.collective, " grows as ",
                    GrowthName(costs.growth),
                    costs.growth_is_assumed
                        ? ", assumed: one world size was measured\n"
                        : absl::StrCat(", the best fit to ", WorldSizes(costs),
                                       " world sizes\n"));
  }
  return text;
}

// Returns nullptr if no messages were measured, within a host or between hosts.
const CollectiveCosts* CostsOfMessages(const NetworkModel& network) {
  const CollectiveCosts* within =
      network.Find(network.MessagesName(/*across_hosts=*/false));
  return within != nullptr ? within
                           : network.FindAcrossHosts(
                                 network.MessagesName(/*across_hosts=*/true));
}

}  // namespace

std::string NetworkToJson(const NetworkModel& network) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"name", network.name},
               {"backend", network.backend},
               {"collectives", network.collectives}};
  if (!network.across_hosts.empty())
    json["across_hosts"] = network.across_hosts;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text) {
  if (IsNestedTooDeeply(text)) return NotANetwork(", nested too deeply");
  try {
    const Json json = Json::parse(text.begin(), text.end());
    RETURN_IF_ERROR(CheckHead(json));
    return json.get<NetworkModel>();
  } catch (const Json::parse_error& error) {
    return NotANetwork(absl::StrCat(", no JSON from byte ", error.byte, " on"));
  } catch (const Json::out_of_range& error) {
    // A number in the text, or a missing field.
    if (error.id == kNumberOverflow)
      return NotANetwork(", a number is too large");
    return Explained(error);
  } catch (const Json::exception& error) {
    return Explained(error);
  }
}

std::string NetworkText(const NetworkModel& network) {
  std::string text = absl::StrCat(network.name, "\n");
  if (!network.collectives.empty())
    absl::StrAppend(&text, "\n", CostsText(network.collectives));
  if (!network.across_hosts.empty()) {
    absl::StrAppend(&text, "\nranks of several hosts:\n\n",
                    CostsText(network.across_hosts));
  }
  return text;
}

absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes) {
  const CollectiveCosts* costs = CostsOfMessages(network);
  if (costs == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no messages were measured over ", network.backend,
                     ": run comm_bench with --nproc=2 "
                     "--collectives=ping_pong,send_recv --record=FILE"));
  }
  const CostCurve& curve = costs->curves.front();
  const double expected = curve.line.SecondsFor(bytes);
  const double factor = expected > 0 ? curve.SecondsFor(bytes) / expected : 1;
  return MessageLine{factor * curve.line.alpha_seconds,
                     factor * curve.line.beta_seconds_per_byte,
                     costs->collective};
}

std::string ShowFlags(const MessageLine& line, double bytes) {
  return absl::StrFormat("--link=%.6g,%.6g --bytes=%.0f", line.alpha_seconds,
                         line.beta_seconds_per_byte, bytes);
}

absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus) {
  if (npus < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(npus, " NPUs: ASTRA-sim's networks have at least 2"));
  }
  if (line.beta_seconds_per_byte <= 0) {
    return absl::FailedPreconditionError(
        "the measured messages cost the same for any size, and "
        "ASTRA-sim supports no infinite bandwidth: measure larger ones");
  }
  return absl::StrFormat(
      "topology: [ Ring ]\n"
      "npus_count: [ %d ]\n"
      "bandwidth: [ %.10g ]  # GB/s, of 2^30 bytes\n"
      "latency: [ %.10g ]  # ns\n",
      npus, 1 / (line.beta_seconds_per_byte * kAstraSimGigabyte),
      line.alpha_seconds * 1e9);
}

}  // namespace rankwise
