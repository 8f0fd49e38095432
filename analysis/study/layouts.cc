#include "analysis/study/layouts.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "analysis/plan/model.h"
#include "analysis/study/bad_flag.h"
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

// The trainer of one axis, or of several together.
std::string TrainerOf(const MeshShape& mesh) {
  const int64_t ranks = mesh.ranks();
  if (mesh.dp == ranks) return "ddp";
  if (mesh.tp == ranks) return "tensor_parallel";
  return mesh.pp == ranks ? "pipeline" : "hybrid";
}

absl::StatusOr<StudyLayout> ParseLayout(absl::string_view text) {
  if (text == "ddp") return StudyLayout{.trainer = "ddp"};
  for (int stage : {1, 2, 3}) {
    if (text == absl::StrCat("zero", stage)) {
      return StudyLayout{.trainer = "fsdp", .zero = stage};
    }
  }
  MeshShape mesh;
  for (absl::string_view axis : absl::StrSplit(text, 'x')) {
    if (SetAxis(axis, &mesh)) continue;
    return BadFlag(
        "--layouts: \"", text,
        "\" is no layout; expected ddp, zero1, zero2, zero3, or pp, dp, cp and "
        "tp, each once and with 2 or more ranks, as in pp2xtp2; or auto alone");
  }
  return StudyLayout{.trainer = TrainerOf(mesh), .mesh = mesh};
}

absl::Status CheckMeshes(const StudyConfig& config) {
  for (const StudyLayout& layout : config.layouts) {
    const int64_t ranks = layout.mesh.ranks();
    if (ranks == 1 || absl::c_linear_search(config.world_sizes, ranks)) {
      continue;
    }
    return BadFlag("--layouts: ", layout.mesh.Name(), " has ", ranks,
                   " ranks, which is none of --world_sizes: add it there");
  }
  if (!absl::c_linear_search(config.trainers, "hybrid")) {
    return absl::OkStatus();
  }
  for (int64_t world_size : config.world_sizes) {
    for (const MeshShape& layout : LayoutsOf(config, world_size)) {
      const int64_t parts = layout.dp * MicroBatches(config, layout);
      if (config.batch_size % parts == 0) continue;
      return BadFlag("--batch_size=", config.batch_size, ": hybrid ",
                     layout.Name(), " divides it into ", layout.dp, " x ",
                     parts / layout.dp,
                     " micro-batches, and it does not divide: pass another, or "
                     "other --layouts");
    }
  }
  return absl::OkStatus();
}

bool CanCutLayers(absl::string_view model) {
  return !absl::StartsWith(model, "simple_cnn") && model != "linear";
}

// Fails where the model's layers cannot be cut.
absl::Status CheckTensorParallel(const StudyConfig& config) {
  if (CanCutLayers(config.model)) return absl::OkStatus();
  for (const char* trainer : {"tensor_parallel", "hybrid"}) {
    if (!absl::c_linear_search(config.trainers, trainer)) continue;
    return BadFlag(
        config.layouts.empty() ? "--trainers: " : "--layouts: ", trainer,
        " cuts layers, and --model=", config.model,
        " has none that can be cut: pass --model=gpt, vit, mlp or mp_mlp");
  }
  return absl::OkStatus();
}

// gpt's; nothing for other models, and where flags change its shape.
std::optional<plan::Model> Transformer(const StudyConfig& config) {
  if (config.model != "gpt") return std::nullopt;
  std::string size = "nano";
  for (absl::string_view flag : config.trainer_flags) {
    for (const char* shape : {"--depth=", "--width=", "--sequence_length="}) {
      if (absl::StartsWith(flag, shape)) return std::nullopt;
    }
    if (absl::ConsumePrefix(&flag, "--model_size=")) size = std::string(flag);
  }
  const absl::StatusOr<plan::Model> model = plan::NamedModel(size);
  return model.ok() ? std::optional(*model) : std::nullopt;
}

// Whether the layers can be divided so, as far as that is known here.
bool ModelAllows(const StudyConfig& config, const MeshShape& mesh) {
  if (mesh.tp > 1 && !CanCutLayers(config.model)) return false;
  if (mesh.cp > 1 && config.model != "gpt") return false;
  if (const auto gpt = Transformer(config)) {
    // The ring of cp gives each rank two pieces of a sequence.
    return gpt->heads % mesh.tp == 0 && gpt->blocks >= mesh.pp &&
           (mesh.cp == 1 || gpt->sequence % (2 * mesh.cp) == 0);
  }
  const int64_t layers = LayersOfModel(config.model);
  return layers == 0 || mesh.pp <= layers;
}

// Whether --layouts=auto holds it: see AllLayouts.
bool IsSensible(const StudyConfig& config, const MeshShape& mesh) {
  const auto axes = absl::c_count_if(
      kAxes, [&mesh](const Axis& axis) { return mesh.*axis.size > 1; });
  if (axes > 2 || mesh.dp == mesh.ranks()) return false;
  return mesh.tp <= MostRanksOfHost(config) && ModelAllows(config, mesh) &&
         config.batch_size % (mesh.dp * MicroBatches(config, mesh)) == 0;
}

std::vector<MeshShape> MeshesOf(int64_t ranks) {
  std::vector<MeshShape> meshes;
  for (int64_t pp = 1; pp <= ranks; ++pp) {
    if (ranks % pp != 0) continue;
    for (int64_t dp = 1; dp <= ranks / pp; ++dp) {
      if (ranks / pp % dp != 0) continue;
      const int64_t left = ranks / pp / dp;
      for (int64_t cp = 1; cp <= left; ++cp) {
        if (left % cp != 0) continue;
        meshes.push_back({.pp = pp, .dp = dp, .cp = cp, .tp = left / cp});
      }
    }
  }
  return meshes;
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

absl::StatusOr<std::vector<StudyLayout>> ParseLayouts(absl::string_view text) {
  std::vector<StudyLayout> layouts;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(StudyLayout layout, ParseLayout(item));
    if (absl::c_linear_search(layouts, layout)) {
      return BadFlag("--layouts: ", item, " occurs twice");
    }
    layouts.push_back(std::move(layout));
  }
  if (layouts.empty()) return BadFlag("--layouts=", text, ": names no layout");
  return layouts;
}

std::vector<StudyLayout> AllLayouts(const StudyConfig& config) {
  std::vector<StudyLayout> layouts = {{.trainer = "ddp"},
                                      {.trainer = "fsdp", .zero = 2},
                                      {.trainer = "fsdp", .zero = 3}};
  for (int64_t world_size : config.world_sizes) {
    if (world_size == 1) continue;
    for (const MeshShape& mesh : MeshesOf(world_size)) {
      if (!IsSensible(config, mesh)) continue;
      layouts.push_back({.trainer = TrainerOf(mesh), .mesh = mesh});
    }
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
  if (config.layouts.empty()) return {DefaultLayout(world_size)};
  std::vector<MeshShape> meshes;
  for (const StudyLayout& layout : config.layouts) {
    if (layout.trainer == "hybrid" && layout.IsAt(world_size)) {
      meshes.push_back(layout.mesh);
    }
  }
  return meshes;
}

int64_t MicroBatches(const StudyConfig& config, const MeshShape& layout) {
  return layout.pp > 1 ? config.micro_batches : 1;
}

absl::Status CheckLayouts(const StudyConfig& config) {
  RETURN_IF_ERROR(CheckTensorParallel(config));
  return CheckMeshes(config);
}

}  // namespace rankwise
