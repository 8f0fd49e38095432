// docs/cost_model.md has the form.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "nlohmann/json.hpp"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "rankwise network";
constexpr int kVersion = 2;

Json ToJson(const Interval& interval) {
  return Json::array({interval.low, interval.high});
}

Json ToJson(const CostPoint& point) {
  return {{"bytes", point.bytes},
          {"median_seconds", point.median_seconds},
          {"interval", ToJson(point.interval)}};
}

Json ToJson(const CostLine& line) {
  return {{"alpha_seconds", line.alpha_seconds},
          {"alpha_interval", ToJson(line.alpha_interval)},
          {"beta_seconds_per_byte", line.beta_seconds_per_byte},
          {"beta_interval", ToJson(line.beta_interval)}};
}

Json ToJson(const CostCurve& curve);
Json ToJson(const CollectiveCosts& costs);

template <typename T>
Json ListOf(const std::vector<T>& elements) {
  Json list = Json::array();
  for (const T& element : elements) list.push_back(ToJson(element));
  return list;
}

Json ToJson(const CostCurve& curve) {
  return {{"world_size", curve.world_size},
          {"bus_factor", std::isnan(curve.bus_factor) ? Json(nullptr)
                                                      : Json(curve.bus_factor)},
          {"median_relative_error", curve.median_relative_error},
          {"line", ToJson(curve.line)},
          {"points", ListOf(curve.points)}};
}

Json ToJson(const CollectiveCosts& costs) {
  return {{"collective", costs.collective},
          {"growth", std::string(GrowthName(costs.growth))},
          {"growth_is_assumed", costs.growth_is_assumed},
          {"curves", ListOf(costs.curves)}};
}

// A value to be read, with its path, as in "collectives[1].curves[0]". The
// first complaint about one of a file's values is what stays in its status.
class Node {
 public:
  Node(const Json& value, std::string path, absl::Status& status)
      : value_(value), path_(std::move(path)), status_(status) {}

  void Fail(absl::string_view why) const {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", why));
  }

  // Null where the field is missing.
  Node operator[](const char* name) const {
    static const Json* const kNone = new Json();
    if (!value_.is_object()) Fail("must be an object");
    const Node missing(
        *kNone, absl::StrCat(path_, path_.empty() ? "" : ".", name), status_);
    const auto found = value_.find(name);
    if (found != value_.end()) return Node(*found, missing.path_, status_);
    missing.Fail("is missing");
    return missing;
  }

  bool Has(const char* name) const {
    return value_.is_object() && value_.contains(name) &&
           !value_[name].is_null();
  }

  // Finite and not negative.
  double Number() const {
    const double number = value_.is_number() ? value_.get<double>() : -1;
    if (std::isfinite(number) && number >= 0) return number;
    Fail("must be a number that is not negative");
    return 0;
  }

  int64_t WorldSize() const {
    if (value_.is_number_integer() && value_.get<int64_t>() >= 2) {
      return value_.get<int64_t>();
    }
    Fail("must be an integer above 1");
    return 2;
  }

  std::string Text() const {
    if (value_.is_string()) return value_.get<std::string>();
    Fail("must be a text");
    return "";
  }

  bool Flag() const {
    if (value_.is_boolean()) return value_.get<bool>();
    Fail("must be true or false");
    return false;
  }

  Interval Ends() const {
    if (!value_.is_array() || value_.size() != 2) {
      Fail("must be a list of two numbers");
      return {};
    }
    const Interval ends = {Node(value_[0], path_, status_).Number(),
                           Node(value_[1], path_, status_).Number()};
    if (ends.low > ends.high) Fail("must not fall");
    return ends;
  }

  template <typename T>
  std::vector<T> List(T (*read)(const Node&)) const {
    std::vector<T> elements;
    if (!value_.is_array()) Fail("must be a list");
    for (size_t i = 0; value_.is_array() && i < value_.size(); ++i) {
      elements.push_back(
          read(Node(value_[i], absl::StrCat(path_, "[", i, "]"), status_)));
    }
    return elements;
  }

 private:
  const Json& value_;
  const std::string path_;
  absl::Status& status_;
};

CostPoint ReadPoint(const Node& node) {
  return {node["bytes"].Number(), node["median_seconds"].Number(),
          node["interval"].Ends()};
}

CostLine ReadLine(const Node& node) {
  return {node["alpha_seconds"].Number(),
          node["beta_seconds_per_byte"].Number(), node["alpha_interval"].Ends(),
          node["beta_interval"].Ends()};
}

// What points and curves are looked up by.
template <typename T, typename Size>
void CheckAscending(const std::vector<T>& list, Size T::*size,
                    const Node& node) {
  for (size_t i = 1; i < list.size(); ++i) {
    if (list[i].*size > list[i - 1].*size) continue;
    return node.Fail("must be in the order of their sizes");
  }
}

Growth ReadGrowth(const Node& node) {
  const std::string name = node.Text();
  for (const Growth growth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    if (GrowthName(growth) == name) return growth;
  }
  node.Fail("must be flat, tree or ring");
  return Growth::kFlat;
}

CostCurve ReadCurve(const Node& node) {
  CostCurve curve;
  curve.world_size = node["world_size"].WorldSize();
  if (node.Has("bus_factor")) curve.bus_factor = node["bus_factor"].Number();
  curve.median_relative_error = node["median_relative_error"].Number();
  curve.line = ReadLine(node["line"]);
  curve.points = node["points"].List(ReadPoint);
  CheckAscending(curve.points, &CostPoint::bytes, node["points"]);
  return curve;
}

CollectiveCosts ReadCosts(const Node& node) {
  CollectiveCosts costs;
  costs.collective = node["collective"].Text();
  costs.growth = ReadGrowth(node["growth"]);
  costs.growth_is_assumed = node["growth_is_assumed"].Flag();
  costs.curves = node["curves"].List(ReadCurve);
  if (costs.curves.empty()) node["curves"].Fail("must not be empty");
  CheckAscending(costs.curves, &CostCurve::world_size, node["curves"]);
  return costs;
}

absl::Status CheckHead(const Json& json) {
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a network file: expected a JSON object with \"format\": \"",
        kFormat, "\", as //analysis/cost_model:fit_network --json writes"));
  }
  const Json version = json.value("version", Json());
  if (version == kVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "version: is ", version.dump(), ", and this program reads version ",
      kVersion,
      ": fit the records again by //analysis/cost_model:fit_network --json"));
}

}  // namespace

std::string NetworkToJson(const NetworkModel& network) {
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"name", network.name},
                     {"backend", network.backend},
                     {"collectives", ListOf(network.collectives)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckHead(json));
  absl::Status status;
  const Node node(json, "", status);
  NetworkModel network;
  network.name = node["name"].Text();
  network.backend = node["backend"].Text();
  network.collectives = node["collectives"].List(ReadCosts);
  std::set<std::string> names;
  for (CollectiveCosts& costs : network.collectives) {
    if (!names.insert(costs.collective).second) {
      node["collectives"].Fail(
          absl::StrCat(costs.collective, " is there a second time"));
    }
    for (CostCurve& curve : costs.curves) {
      curve.collective = costs.collective;
      curve.backend = network.backend;
    }
  }
  if (!status.ok()) return status;
  return network;
}

}  // namespace rankwise
