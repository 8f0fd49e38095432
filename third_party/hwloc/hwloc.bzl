"""hwloc: the topology of the machine, as installed."""

load("//third_party/pkg_config:pkg_config.bzl", "pkg_config_repository")

def hwloc_repository(name):
    pkg_config_repository(
        name = name,
        debian_package = "libhwloc-dev",
        targets = {
            "hwloc": ["hwloc"],
        },
    )
