"""Google Benchmark, as installed."""

load("//third_party/pkg_config:pkg_config.bzl", "pkg_config_repository")

def benchmark_repository(name):
    pkg_config_repository(
        name = name,
        debian_package = "libbenchmark-dev",
        targets = {
            "benchmark": ["benchmark"],
            "benchmark_main": ["benchmark"],
        },
        linkopts = {"benchmark_main": ["-lbenchmark_main"]},
    )
