#include "analysis/study/layouts.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "analysis/study/study_config.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

struct Axis {
  const char* name;
  int64_t MeshShape::*size;
};

constexpr int64_t kLargestAxis = 4096;
constexpr Axis kAxes[] = {{"pp", &MeshShape::pp},
                          {"dp", &MeshShape::dp},
                          {"cp", &MeshShape::cp},
                          {"tp", &MeshShape::tp}};

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Of "tp2". False where that is no axis, or `shape` has it already.
bool SetAxis(absl::string_view text, MeshShape* shape) {
  for (const Axis& axis : kAxes) {
    if (!absl::ConsumePrefix(&text, axis.name)) continue;
    int64_t& size = shape->*axis.size;
    return size == 1 && absl::SimpleAtoi(text, &size) && size > 1 &&
           size <= kLargestAxis;
  }
  return false;
}

absl::StatusOr<MeshShape> ParseLayout(absl::string_view text) {
  MeshShape shape;
  for (absl::string_view axis : absl::StrSplit(text, 'x')) {
    if (SetAxis(axis, &shape)) continue;
    return Bad(
        "--hybrid_layouts: \"", text,
        "\" is no layout; expected pp, dp, cp and tp, each once and with "
        "2 or more ranks, as in pp2xtp2");
  }
  return shape;
}

absl::Status CheckHybrid(const StudyConfig& config) {
  if (!absl::c_linear_search(config.trainers, "hybrid")) {
    return absl::OkStatus();
  }
  for (const MeshShape& layout : config.hybrid_layouts) {
    if (absl::c_linear_search(config.world_sizes, layout.ranks())) continue;
    return Bad("--hybrid_layouts: ", layout.Name(), " has ", layout.ranks(),
               " ranks, which is none of --world_sizes: add it there");
  }
  for (int64_t world_size : config.world_sizes) {
    for (const MeshShape& layout : LayoutsOf(config, world_size)) {
      const int64_t parts = layout.dp * MicroBatches(config, layout);
      if (config.batch_size % parts == 0) continue;
      return Bad("--batch_size=", config.batch_size, ": hybrid ", layout.Name(),
                 " divides it into ", layout.dp, " x ", parts / layout.dp,
                 " micro-batches, and it does not divide: pass another, or "
                 "other --hybrid_layouts");
    }
  }
  return absl::OkStatus();
}

// Fails where the model's layers cannot be cut.
absl::Status CheckTensorParallel(const StudyConfig& config) {
  if (!absl::StartsWith(config.model, "simple_cnn") &&
      config.model != "linear") {
    return absl::OkStatus();
  }
  for (const char* trainer : {"tensor_parallel", "hybrid"}) {
    if (!absl::c_linear_search(config.trainers, trainer)) continue;
    return Bad(
        "--trainers: ", trainer, " cuts layers, and --model=", config.model,
        " has none that can be cut: pass --model=gpt, vit, mlp or mp_mlp");
  }
  return absl::OkStatus();
}

}  // namespace

std::string MeshShape::Name() const {
  std::string name;
  for (const Axis& axis : kAxes) {
    const int64_t size = this->*axis.size;
    if (size == 1) continue;
    absl::StrAppend(&name, name.empty() ? "" : "x", axis.name, size);
  }
  return name;
}

absl::StatusOr<std::vector<MeshShape>> ParseLayouts(absl::string_view text) {
  std::vector<MeshShape> layouts;
  for (absl::string_view layout :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(layouts.emplace_back(), ParseLayout(layout));
  }
  return layouts;
}

MeshShape DefaultLayout(int64_t world_size) {
  MeshShape shape{.dp = world_size};
  for (int64_t* axis : {&shape.tp, &shape.pp}) {
    if (shape.dp % 2 != 0) continue;
    *axis = 2;
    shape.dp /= 2;
  }
  return shape;
}

std::vector<MeshShape> LayoutsOf(const StudyConfig& config,
                                 int64_t world_size) {
  if (config.hybrid_layouts.empty()) return {DefaultLayout(world_size)};
  std::vector<MeshShape> layouts = config.hybrid_layouts;
  std::erase_if(layouts, [world_size](const MeshShape& layout) {
    return layout.ranks() != world_size;
  });
  return layouts;
}

int64_t MicroBatches(const StudyConfig& config, const MeshShape& layout) {
  return layout.pp > 1 ? config.micro_batches : 1;
}

absl::Status CheckLayouts(const StudyConfig& config) {
  RETURN_IF_ERROR(CheckTensorParallel(config));
  return CheckHybrid(config);
}

}  // namespace rankwise
