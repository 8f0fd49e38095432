// docs/cost_model.md has the form.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "rankwise network";
constexpr int kVersion = 1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Json ToJson(const Interval& interval) {
  return Json::array({interval.low, interval.high});
}

Json ToJson(const CostPoint& point) {
  return {{"bytes", point.bytes},
          {"median_seconds", point.median_seconds},
          {"interval", ToJson(point.interval)}};
}

Json ToJson(const CostSegment& segment) {
  return {
      {"min_bytes", segment.min_bytes},
      {"max_bytes",
       std::isinf(segment.max_bytes) ? Json(nullptr) : Json(segment.max_bytes)},
      {"alpha_seconds", segment.alpha_seconds},
      {"alpha_interval", ToJson(segment.alpha_interval)},
      {"beta_seconds_per_byte", segment.beta_seconds_per_byte},
      {"beta_interval", ToJson(segment.beta_interval)}};
}

Json ToJson(const CostCurve& curve) {
  Json points = Json::array(), segments = Json::array();
  for (const CostPoint& point : curve.points) points.push_back(ToJson(point));
  for (const CostSegment& segment : curve.segments) {
    segments.push_back(ToJson(segment));
  }
  return {{"world_size", curve.world_size},
          {"bus_factor", std::isnan(curve.bus_factor) ? Json(nullptr)
                                                      : Json(curve.bus_factor)},
          {"median_relative_error", curve.median_relative_error},
          {"segments", std::move(segments)},
          {"points", std::move(points)}};
}

Json ToJson(const CollectiveCosts& costs) {
  Json curves = Json::array();
  for (const CostCurve& curve : costs.curves) curves.push_back(ToJson(curve));
  return {{"collective", costs.collective},
          {"growth", std::string(GrowthName(costs.growth))},
          {"growth_is_assumed", costs.growth_is_assumed},
          {"curves", std::move(curves)}};
}

Json ToJson(const LogGP& loggp) {
  return {{"latency_seconds", loggp.latency_seconds},
          {"latency_interval", ToJson(loggp.latency_interval)},
          {"overhead_seconds", loggp.overhead_seconds},
          {"overhead_interval", ToJson(loggp.overhead_interval)},
          {"gap_seconds", loggp.gap_seconds},
          {"gap_interval", ToJson(loggp.gap_interval)},
          {"gap_seconds_per_byte", loggp.gap_seconds_per_byte},
          {"gap_per_byte_interval", ToJson(loggp.gap_per_byte_interval)}};
}

// Reads fields; the first that is broken is what stays in the status, by its
// path, as in "collectives[1].curves[0].world_size".
class Reader {
 public:
  const absl::Status& status() const { return status_; }

  void Fail(const std::string& path, absl::string_view why) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  }

  // An empty value where the field is missing.
  const Json& Field(const Json& object, const std::string& path,
                    const char* name) {
    static const Json* const kNone = new Json();
    if (!object.is_object()) {
      Fail(path, "must be an object");
      return *kNone;
    }
    const auto found = object.find(name);
    if (found != object.end()) return *found;
    Fail(absl::StrCat(path, path.empty() ? "" : ".", name), "is missing");
    return *kNone;
  }

  // Finite and not negative.
  double Number(const Json& object, const std::string& path, const char* name) {
    return NumberOf(Field(object, path, name),
                    absl::StrCat(path, path.empty() ? "" : ".", name));
  }

  int64_t WorldSize(const Json& object, const std::string& path) {
    const Json& value = Field(object, path, "world_size");
    if (value.is_number_integer() && value.get<int64_t>() >= 2) {
      return value.get<int64_t>();
    }
    Fail(absl::StrCat(path, ".world_size"), "must be an integer above 1");
    return 2;
  }

  std::string Text(const Json& object, const std::string& path,
                   const char* name) {
    const Json& value = Field(object, path, name);
    if (value.is_string()) return value.get<std::string>();
    Fail(absl::StrCat(path, path.empty() ? "" : ".", name), "must be a text");
    return "";
  }

  bool Flag(const Json& object, const std::string& path, const char* name) {
    const Json& value = Field(object, path, name);
    if (value.is_boolean()) return value.get<bool>();
    Fail(absl::StrCat(path, ".", name), "must be true or false");
    return false;
  }

  Interval Ends(const Json& object, const std::string& path, const char* name) {
    const Json& value = Field(object, path, name);
    const std::string place = absl::StrCat(path, ".", name);
    if (!value.is_array() || value.size() != 2) {
      Fail(place, "must be a list of two numbers");
      return {};
    }
    const Interval ends = {NumberOf(value[0], place),
                           NumberOf(value[1], place)};
    if (ends.low > ends.high) Fail(place, "must not fall");
    return ends;
  }

  // Calls read(element, path) for each element of a list.
  template <typename Read>
  void Each(const Json& object, const std::string& path, const char* name,
            const Read& read) {
    const Json& value = Field(object, path, name);
    const std::string place = absl::StrCat(path, path.empty() ? "" : ".", name);
    if (!value.is_array()) return Fail(place, "must be a list");
    for (size_t i = 0; i < value.size() && status_.ok(); ++i) {
      read(value[i], absl::StrCat(place, "[", i, "]"));
    }
  }

 private:
  double NumberOf(const Json& value, const std::string& place) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (std::isfinite(number) && number >= 0) return number;
    Fail(place, "must be a number that is not negative");
    return 0;
  }

  absl::Status status_;
};

CostSegment ReadSegment(const Json& json, const std::string& path,
                        Reader& reader) {
  CostSegment segment;
  segment.min_bytes = reader.Number(json, path, "min_bytes");
  if (!reader.Field(json, path, "max_bytes").is_null()) {
    segment.max_bytes = reader.Number(json, path, "max_bytes");
  }
  segment.alpha_seconds = reader.Number(json, path, "alpha_seconds");
  segment.alpha_interval = reader.Ends(json, path, "alpha_interval");
  segment.beta_seconds_per_byte =
      reader.Number(json, path, "beta_seconds_per_byte");
  segment.beta_interval = reader.Ends(json, path, "beta_interval");
  return segment;
}

void CheckSegments(const std::vector<CostSegment>& segments,
                   const std::string& path, Reader& reader) {
  if (segments.empty()) return reader.Fail(path, "must not be empty");
  double end = 0;
  for (const CostSegment& segment : segments) {
    if (segment.min_bytes != end || segment.max_bytes <= end) {
      return reader.Fail(path,
                         "must follow each other without gaps, from 0 bytes");
    }
    end = segment.max_bytes;
  }
  if (end != kInfinity) {
    reader.Fail(path, "must end with one whose max_bytes is null");
  }
}

CostCurve ReadCurve(const Json& json, const std::string& path, Reader& reader) {
  CostCurve curve;
  curve.world_size = reader.WorldSize(json, path);
  if (json.is_object() && json.contains("bus_factor") &&
      !json["bus_factor"].is_null()) {
    curve.bus_factor = reader.Number(json, path, "bus_factor");
  }
  curve.median_relative_error =
      reader.Number(json, path, "median_relative_error");
  reader.Each(json, path, "segments",
              [&](const Json& segment, const std::string& place) {
                curve.segments.push_back(ReadSegment(segment, place, reader));
              });
  CheckSegments(curve.segments, absl::StrCat(path, ".segments"), reader);
  reader.Each(
      json, path, "points", [&](const Json& point, const std::string& place) {
        curve.points.push_back({reader.Number(point, place, "bytes"),
                                reader.Number(point, place, "median_seconds"),
                                reader.Ends(point, place, "interval")});
      });
  return curve;
}

CollectiveCosts ReadCosts(const Json& json, const std::string& path,
                          const std::string& backend, Reader& reader) {
  CollectiveCosts costs;
  costs.collective = reader.Text(json, path, "collective");
  const auto growth = GrowthFromName(reader.Text(json, path, "growth"));
  if (!growth.has_value()) {
    reader.Fail(absl::StrCat(path, ".growth"), "must be flat, tree or ring");
  }
  costs.growth = growth.value_or(Growth::kFlat);
  costs.growth_is_assumed = reader.Flag(json, path, "growth_is_assumed");
  reader.Each(json, path, "curves",
              [&](const Json& curve, const std::string& place) {
                costs.curves.push_back(ReadCurve(curve, place, reader));
                costs.curves.back().collective = costs.collective;
                costs.curves.back().backend = backend;
              });
  const std::string place = absl::StrCat(path, ".curves");
  if (costs.curves.empty()) reader.Fail(place, "must not be empty");
  for (size_t i = 1; i < costs.curves.size(); ++i) {
    if (costs.curves[i].world_size <= costs.curves[i - 1].world_size) {
      reader.Fail(place, "must be in the order of their world sizes");
    }
  }
  return costs;
}

LogGP ReadMessages(const Json& json, const std::string& path, Reader& reader) {
  LogGP loggp;
  loggp.latency_seconds = reader.Number(json, path, "latency_seconds");
  loggp.latency_interval = reader.Ends(json, path, "latency_interval");
  loggp.overhead_seconds = reader.Number(json, path, "overhead_seconds");
  loggp.overhead_interval = reader.Ends(json, path, "overhead_interval");
  loggp.gap_seconds = reader.Number(json, path, "gap_seconds");
  loggp.gap_interval = reader.Ends(json, path, "gap_interval");
  loggp.gap_seconds_per_byte =
      reader.Number(json, path, "gap_seconds_per_byte");
  loggp.gap_per_byte_interval =
      reader.Ends(json, path, "gap_per_byte_interval");
  return loggp;
}

absl::Status CheckHead(const Json& json) {
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a network file: expected a JSON object with \"format\": \"",
        kFormat, "\", as //analysis/cost_model:fit_network --json writes"));
  }
  const Json version = json.value("version", Json());
  if (version == kVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("version: is ", version.dump(),
                   ", and this program reads version ", kVersion));
}

}  // namespace

std::string NetworkToJson(const NetworkModel& network) {
  Json collectives = Json::array(), messages = Json::array();
  for (const CollectiveCosts& costs : network.collectives) {
    collectives.push_back(ToJson(costs));
  }
  for (const LogGP& loggp : network.messages) {
    messages.push_back(ToJson(loggp));
  }
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"name", network.name},
                     {"backend", network.backend},
                     {"collectives", std::move(collectives)},
                     {"messages", std::move(messages)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (absl::Status head = CheckHead(json); !head.ok()) return head;
  Reader reader;
  NetworkModel network;
  network.name = reader.Text(json, "", "name");
  network.backend = reader.Text(json, "", "backend");
  std::set<std::string> names;
  reader.Each(json, "", "collectives",
              [&](const Json& costs, const std::string& place) {
                network.collectives.push_back(
                    ReadCosts(costs, place, network.backend, reader));
                if (!names.insert(network.collectives.back().collective).second)
                  reader.Fail(place, "is there a second time");
              });
  reader.Each(json, "", "messages",
              [&](const Json& loggp, const std::string& place) {
                network.messages.push_back(ReadMessages(loggp, place, reader));
              });
  if (network.messages.size() > 1) {
    reader.Fail("messages", "must hold at most one");
  }
  if (!reader.status().ok()) return reader.status();
  return network;
}

}  // namespace rankwise
