#include "trainers/huggingface/config_file.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"
#include "trainers/huggingface/json_file.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

constexpr char kLlama[] = "LlamaForCausalLM", kQwen3[] = "Qwen3ForCausalLM";

// Reads fields of `json`; keeps the first complaint.
class Fields {
 public:
  Fields(const Json& json, std::string where)
      : json_(json), where_(std::move(where)) {}

  // Returns null if the field is missing.
  Json operator[](const char* name) const {
    return json_.is_object() ? json_.value(name, Json()) : Json();
  }

  template <typename... Parts>
  void Complain(const Parts&... parts) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", parts...));
  }
  const absl::Status& status() const { return status_; }

  // Returns a whole number from 1. A missing field has the value `otherwise`;
  // it is an error if that is 0.
  int64_t Size(const char* name, int64_t otherwise = 0) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    const Json value = (*this)[name];
    if (value.is_null() && otherwise > 0) return otherwise;
    if (value.is_number_integer() && value > 0 && value <= kMost)
      return value.get<int64_t>();
    Complain(name, " is ", Shown(value), "; it must be a whole number from 1");
    return 1;
  }

  // Like Size, for any positive number.
  double Positive(const char* name, double otherwise = 0) {
    const Json value = (*this)[name];
    if (value.is_null() && otherwise > 0) return otherwise;
    if (value.is_number() && value > 0) return value.get<double>();
    Complain(name, " is ", Shown(value), "; it must be a positive number");
    return 1;
  }

  // Complains if the field is neither missing nor `only`.
  void Only(const char* name, const Json& only, const char* why) {
    const Json value = (*this)[name];
    if (!value.is_null() && value != only)
      Complain(name, " is ", Shown(value), "; ", why);
  }

  static std::string Shown(const Json& value) {
    constexpr size_t kLongest = 200;
    return value.is_null()
               ? "missing"
               : value.dump(-1, ' ', /*ensure_ascii=*/true).substr(0, kLongest);
  }

 private:
  const Json& json_;
  const std::string where_;
  absl::Status status_;
};

bool IsQwen3(Fields& fields) {
  const Json names = fields["architectures"];
  for (const char* known : {kLlama, kQwen3}) {
    if (names == Json::array({known})) return known == kQwen3;
  }
  fields.Complain("architectures is ", Fields::Shown(names), "; [\"", kLlama,
                  "\"] and [\"", kQwen3, "\"] are supported");
  return false;
}

void CheckHonoured(Fields& fields) {
  constexpr char kNoBias[] = "linear layers have no biases here";
  fields.Only("hidden_act", "silu", "only \"silu\" is supported");
  fields.Only("attention_bias", false, kNoBias);
  fields.Only("mlp_bias", false, kNoBias);
  fields.Only("attention_dropout", 0, "only 0 is supported");
  fields.Only("use_sliding_window", false,
              "attention to a sliding window is not supported");
  fields.Only("quantization_config", nullptr,
              "quantized weights are not supported; give the folder of the "
              "weights in bf16, fp16 or fp32");
  for (const Json& type : fields["layer_types"]) {
    if (type != "full_attention") {
      fields.Complain("layer_types has ", Fields::Shown(type),
                      "; only \"full_attention\" is supported");
    }
  }
}

// `rope` is the object "rope_scaling", or the "rope_parameters" of newer files.
void ReadRope(Fields& rope, HuggingFaceConfig& config) {
  const Json named = rope["rope_type"];
  const Json type = named.is_null() ? rope["type"] : named;
  if (type.is_null() || type == "default") return;
  if (type != "llama3") {
    rope.Complain("rope type ", Fields::Shown(type),
                  "; \"default\" and \"llama3\" are supported");
  }
  config.rope_scaling = {
      .factor = rope.Positive("factor"),
      .low_frequency_factor = rope.Positive("low_freq_factor"),
      .high_frequency_factor = rope.Positive("high_freq_factor"),
      .original_tokens = rope.Size("original_max_position_embeddings")};
  if (config.rope_scaling->high_frequency_factor <=
      config.rope_scaling->low_frequency_factor) {
    rope.Complain("high_freq_factor must be greater than low_freq_factor");
  }
}

absl::Status ReadPositions(Fields& fields, const std::string& path,
                           HuggingFaceConfig& config) {
  const bool is_new = !fields["rope_parameters"].is_null();
  const char* const name = is_new ? "rope_parameters" : "rope_scaling";
  const Json json = fields[name];
  if (!json.is_null() && !json.is_object())
    fields.Complain(name, " is ", Fields::Shown(json), ", not an object");
  Fields rope(json, absl::StrCat(path, ": ", name));
  for (Fields* holder : {&fields, &rope})
    holder->Only("partial_rotary_factor", 1, "only 1 is supported");
  ReadRope(rope, config);
  config.rope_theta =
      (is_new ? rope : fields).Positive("rope_theta", config.rope_theta);
  return rope.status();
}

void ReadHeads(Fields& fields, HuggingFaceConfig& config) {
  config.num_attention_heads = fields.Size("num_attention_heads");
  // Only Llama has defaults that follow from other fields.
  const int64_t heads = config.num_attention_heads;
  const bool divides = !config.qk_norm && config.hidden_size % heads == 0;
  config.num_key_value_heads =
      fields.Size("num_key_value_heads", config.qk_norm ? 0 : heads);
  config.head_dim =
      fields.Size("head_dim", divides ? config.hidden_size / heads : 0);
  if (heads % config.num_key_value_heads != 0) {
    fields.Complain("num_key_value_heads is ", config.num_key_value_heads,
                    "; it must divide num_attention_heads, ", heads);
  }
  if (config.head_dim % 2 != 0) {
    fields.Complain("head_dim is ", config.head_dim,
                    "; it must be even, as rotary positions turn pairs");
  }
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(
    const std::string& path) {
  ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  Fields fields(json, path);
  if (!json.is_object()) {
    fields.Complain("is not a JSON object");
    return fields.status();
  }
  HuggingFaceConfig config;
  config.qk_norm = IsQwen3(fields);
  CheckHonoured(fields);
  config.vocab_size = fields.Size("vocab_size");
  config.hidden_size = fields.Size("hidden_size");
  config.intermediate_size = fields.Size("intermediate_size");
  config.num_hidden_layers = fields.Size("num_hidden_layers");
  config.max_position_embeddings = fields.Size("max_position_embeddings");
  config.rms_norm_eps = fields.Positive("rms_norm_eps");
  ReadHeads(fields, config);
  const Json tied = fields["tie_word_embeddings"];
  if (!tied.is_null() && !tied.is_boolean()) {
    fields.Complain("tie_word_embeddings is ", Fields::Shown(tied),
                    "; it must be true or false");
  }
  config.tie_word_embeddings = tied == true;
  const absl::Status positions = ReadPositions(fields, path, config);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(positions);
  return config;
}

absl::Status WriteHuggingFaceConfig(const std::string& path,
                                    const HuggingFaceConfig& config,
                                    torch::ScalarType type) {
  nlohmann::ordered_json json = {
      {"architectures", {config.qk_norm ? kQwen3 : kLlama}},
      {"model_type", config.qk_norm ? "qwen3" : "llama"},
      {"torch_dtype", type == at::kFloat      ? "float32"
                      : type == at::kBFloat16 ? "bfloat16"
                                              : "float16"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_attention_heads", config.num_attention_heads},
      {"num_key_value_heads", config.num_key_value_heads},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", config.max_position_embeddings},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_theta", config.rope_theta},
      {"rope_scaling", nullptr},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", config.tie_word_embeddings}};
  if (config.rope_scaling.has_value()) {
    json["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", config.rope_scaling->factor},
        {"low_freq_factor", config.rope_scaling->low_frequency_factor},
        {"high_freq_factor", config.rope_scaling->high_frequency_factor},
        {"original_max_position_embeddings",
         config.rope_scaling->original_tokens}};
  }
  return ReplaceFile(path, json.dump(/*indent=*/2) + "\n");
}

}  // namespace rankwise
