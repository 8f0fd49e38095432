#include "records/field_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace rankwise {
namespace {

std::string Dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <typename T>
void AppendNumber(T value, std::string* out) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  out->append(digits, end.ptr - digits);
}

// A negative, infinite or NaN duration is a clock's mistake.
double Duration(double value) {
  return std::isfinite(value) && value > 0 ? value : 0.0;
}

template <typename T>
void AppendList(const std::vector<T>& values, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendNumber(values[i], out);
  }
  out->push_back(']');
}

}  // namespace

void FieldWriter::Name(const char* name) {
  if (out_->back() != '{') out_->push_back(',');
  out_->push_back('"');
  out_->append(name).append("\":");
}

void FieldWriter::Text(const char* name, const std::string& value) {
  Name(name);
  out_->append(Dump(value));
}

void FieldWriter::TextMap(const char* name,
                          const std::map<std::string, std::string>& values) {
  Name(name);
  out_->append(Dump(nlohmann::json(values)));
}

void FieldWriter::TextList(const char* name,
                           const std::vector<std::string>& values) {
  Name(name);
  out_->append(Dump(nlohmann::json(values)));
}

void FieldWriter::Flag(const char* name, bool value) {
  Name(name);
  out_->append(value ? "true" : "false");
}

void FieldWriter::Count(const char* name, int64_t value, int64_t) {
  Name(name);
  AppendNumber(value, out_);
}

void FieldWriter::CountList(const char* name,
                            const std::vector<int64_t>& values) {
  Name(name);
  AppendList(values, out_);
}

void FieldWriter::Number(const char* name, double value) {
  Name(name);
  if (value == 0 && std::signbit(value)) {
    out_->append("-0.0");  // "-0" would read back as the integer 0
  } else if (std::isfinite(value)) {
    AppendNumber(value, out_);
  } else if (std::isnan(value)) {
    out_->append("\"NaN\"");
  } else {
    out_->append(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  }
}

void FieldWriter::Seconds(const char* name, double value) {
  Number(name, Duration(value));
}

void FieldWriter::SecondsList(const char* name,
                              const std::vector<double>& values) {
  Name(name);
  std::vector<double> durations(values.size());
  std::transform(values.begin(), values.end(), durations.begin(), Duration);
  AppendList(durations, out_);
}

void FieldWriter::Estimate(const char* name, double value, double maximum) {
  Number(name, std::isfinite(value) ? std::clamp(value, 0.0, maximum)
                                    : std::numeric_limits<double>::quiet_NaN());
}

}  // namespace rankwise
