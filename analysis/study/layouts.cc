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

constexpr int64_t kLargestAxis = 4096;

// Parses "tp2". Returns false for an unknown axis, or one that `shape` already
// has.
bool SetAxis(absl::string_view text, Layout* shape) {
  for (const MeshAxis& axis : kMeshAxes) {
    if (!absl::ConsumePrefix(&text, axis.name)) continue;
    int64_t& size = shape->*axis.ranks;
    return size == 1 && absl::SimpleAtoi(text, &size) && size > 1 &&
           size <= kLargestAxis;
  }
  return false;
}

absl::StatusOr<Layout> ParseLayout(absl::string_view text) {
  if (text == "ddp") return Layout();
  for (int stage : {1, 2, 3}) {
    if (text == absl::StrCat("zero", stage)) return Layout{.zero = stage};
  }
  Layout mesh;
  for (absl::string_view axis : absl::StrSplit(text, 'x')) {
    if (SetAxis(axis, &mesh)) continue;
    return BadFlag(
        "--layouts: \"", text,
        "\" is no layout; expected ddp, zero1, zero2, zero3, or pp, dp, cp and "
        "tp, each once and with 2 or more ranks, as in pp2xtp2; or auto alone");
  }
  return mesh;
}

absl::Status CheckMeshes(const StudyConfig& config) {
  for (const Layout& layout : config.layouts) {
    const int64_t ranks = layout.ranks();
    if (ranks == 1 || absl::c_linear_search(config.world_sizes, ranks)) {
      continue;
    }
    return BadFlag("--layouts: ", layout.AxesName(), " has ", ranks,
                   " ranks, which is not one of --world_sizes: add it there");
  }
  if (!absl::c_linear_search(config.trainers, "hybrid")) {
    return absl::OkStatus();
  }
  for (int64_t world_size : config.world_sizes) {
    for (const Layout& layout : LayoutsOf(config, world_size)) {
      const int64_t parts = layout.dp * MicroBatches(config, layout);
      if (config.batch_size % parts == 0) continue;
      return BadFlag("--batch_size=", config.batch_size, ": hybrid ",
                     layout.AxesName(), " divides it into ", layout.dp, " x ",
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

// Fails if the model's layers cannot be divided.
absl::Status CheckTensorParallel(const StudyConfig& config) {
  if (CanCutLayers(config.model)) return absl::OkStatus();
  for (const char* trainer : {"tensor_parallel", "hybrid"}) {
    if (!absl::c_linear_search(config.trainers, trainer)) continue;
    return BadFlag(
        config.layouts.empty() ? "--trainers: " : "--layouts: ", trainer,
        " cuts layers, and --model=", config.model,
        " has none that can be cut: pass --model=gpt, llama, vit, mlp or "
        "mp_mlp");
  }
  return absl::OkStatus();
}

// Returns gpt's shape; nullopt for other models, and if flags change its shape.
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

// Whether the model supports the mesh, as far as that is known here.
bool ModelAllows(const StudyConfig& config, const Layout& mesh) {
  if (mesh.tp > 1 && !CanCutLayers(config.model)) return false;
  if (mesh.cp > 1 && config.model != "gpt" && config.model != "llama")
    return false;
  if (const auto gpt = Transformer(config)) {
    // The ring of cp gives each rank two pieces of a sequence.
    return gpt->heads % mesh.tp == 0 && gpt->blocks >= mesh.pp &&
           (mesh.cp == 1 || gpt->sequence % (2 * mesh.cp) == 0);
  }
  const int64_t layers = LayersOfModel(config.model);
  return layers == 0 || mesh.pp <= layers;
}

// Whether --layouts=auto includes the mesh; see AllLayouts.
bool IsSensible(const StudyConfig& config, const Layout& mesh) {
  const auto axes = absl::c_count_if(kMeshAxes, [&mesh](const MeshAxis& axis) {
    return mesh.*axis.ranks > 1;
  });
  if (axes > 2 || mesh.dp == mesh.ranks()) return false;
  return mesh.tp <= MostRanksOfHost(config) && ModelAllows(config, mesh) &&
         config.batch_size % (mesh.dp * MicroBatches(config, mesh)) == 0;
}

std::vector<Layout> MeshesOf(int64_t ranks) {
  std::vector<Layout> meshes;
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

std::string TrainerOf(const Layout& layout) {
  const int64_t ranks = layout.ranks();
  if (layout.zero > 0) return "fsdp";
  if (layout.dp == ranks) return "ddp";
  if (layout.tp == ranks) return "tensor_parallel";
  return layout.pp == ranks ? "pipeline" : "hybrid";
}

bool IsAt(const Layout& layout, int64_t world_size) {
  return layout.ranks() == 1 || layout.ranks() == world_size;
}

absl::StatusOr<std::vector<Layout>> ParseLayouts(absl::string_view text) {
  std::vector<Layout> layouts;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(Layout layout, ParseLayout(item));
    if (absl::c_linear_search(layouts, layout)) {
      return BadFlag("--layouts: ", item, " occurs twice");
    }
    layouts.push_back(std::move(layout));
  }
  if (layouts.empty()) return BadFlag("--layouts=", text, ": names no layout");
  return layouts;
}

std::vector<Layout> AllLayouts(const StudyConfig& config) {
  std::vector<Layout> layouts = {{}, {.zero = 2}, {.zero = 3}};
  for (int64_t world_size : config.world_sizes) {
    if (world_size == 1) continue;
    for (const Layout& mesh : MeshesOf(world_size)) {
      if (IsSensible(config, mesh)) layouts.push_back(mesh);
    }
  }
  return layouts;
}

Layout DefaultLayout(int64_t world_size) {
  Layout shape{.dp = world_size};
  for (int64_t* axis : {&shape.tp, &shape.pp}) {
    if (shape.dp % 2 != 0) continue;
    *axis = 2;
    shape.dp /= 2;
  }
  return shape;
}

std::vector<Layout> LayoutsOf(const StudyConfig& config, int64_t world_size) {
  if (config.layouts.empty()) return {DefaultLayout(world_size)};
  std::vector<Layout> meshes;
  for (const Layout& layout : config.layouts) {
    if (TrainerOf(layout) == "hybrid" && IsAt(layout, world_size)) {
      meshes.push_back(layout);
    }
  }
  return meshes;
}

int64_t MicroBatches(const StudyConfig& config, const Layout& layout) {
  return layout.pp > 1 ? config.micro_batches : 1;
}

absl::Status CheckLayouts(const StudyConfig& config) {
  RETURN_IF_ERROR(CheckTensorParallel(config));
  return CheckMeshes(config);
}

}  // namespace rankwise
