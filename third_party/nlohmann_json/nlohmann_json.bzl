"""nlohmann-json, as installed."""

load("//third_party/pkg_config:pkg_config.bzl", "pkg_config_repository")

def nlohmann_json_repository(name):
    pkg_config_repository(
        name = name,
        debian_package = "nlohmann-json3-dev",
        targets = {
            "json": ["nlohmann_json"],
        },
    )
