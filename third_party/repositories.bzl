"""All dependencies of rankwise, for its own WORKSPACE and for repositories that use it as a library (examples/)."""

load("//third_party/bazel:shims.bzl", "bazel_4_2_shims")
load("//third_party/absl:absl.bzl", "absl_repository")
load("//third_party/benchmark:benchmark.bzl", "benchmark_repository")
load("//third_party/cuda:nvcc.bzl", "nvcc_repository")
load("//third_party/gloo:gloo.bzl", "gloo_headers_repository")
load("//third_party/googletest:googletest.bzl", "googletest_repository")
load("//third_party/hwloc:hwloc.bzl", "hwloc_repository")
load("//third_party/libtorch:libtorch.bzl", "libtorch_cpu_repository", "libtorch_cuda_repository")
load("//third_party/nlohmann_json:nlohmann_json.bzl", "nlohmann_json_repository")
load("//third_party/openmpi:openmpi.bzl", "openmpi_repository")
load("//third_party/plotly:plotly.bzl", "plotly_repository")

def rankwise_repositories(path = "."):
    """Declares all repositories that rankwise's packages depend on.

    They refer to this repository as @rankwise, so a user's workspace must give it that name. A repository is fetched only when a built
    target depends on it.

    Args:
      path: this repository's folder relative to the workspace: "." or the path of its local_repository.
    """
    bazel_4_2_shims(path)
    absl_repository(name = "absl")
    benchmark_repository(name = "benchmark")
    gloo_headers_repository(name = "gloo_headers")
    googletest_repository(name = "gtest")
    hwloc_repository(name = "hwloc")

    # Fetched when a built target depends on them: the CUDA one only under --config=cuda.
    libtorch_cpu_repository(name = "libtorch_cpu")
    libtorch_cuda_repository(name = "libtorch_cuda")
    nlohmann_json_repository(name = "nlohmann_json")

    # Fetched when a .cu file is compiled, only under --config=cuda.
    nvcc_repository(name = "nvcc")

    openmpi_repository(name = "openmpi")

    # Fetched when the report is built.
    plotly_repository(name = "plotly")
