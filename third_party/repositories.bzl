"""Everything that rankwise depends on, for its own WORKSPACE and for those of repositories that use it as a library (examples/)."""

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
    """Names all repositories that rankwise's packages depend on.

    They depend on each other's contents by the name @rankwise, so a user's workspace must call this repository that. Nothing is fetched
    before something that is built depends on it.

    Args:
      path: the folder of this repository, from the workspace's own: "." or what its local_repository says.
    """
    bazel_4_2_shims(path)
    absl_repository(name = "absl")
    benchmark_repository(name = "benchmark")
    gloo_headers_repository(name = "gloo_headers")
    googletest_repository(name = "gtest")
    hwloc_repository(name = "hwloc")

    # Fetched when something that is built depends on it: the CUDA set only under --config=cuda.
    libtorch_cpu_repository(name = "libtorch_cpu")
    libtorch_cuda_repository(name = "libtorch_cuda")
    nlohmann_json_repository(name = "nlohmann_json")

    # Fetched when a .cu file is compiled, only under --config=cuda.
    nvcc_repository(name = "nvcc")

    openmpi_repository(name = "openmpi")

    # Fetched when the report is built.
    plotly_repository(name = "plotly")
