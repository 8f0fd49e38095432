"""GoogleTest and GoogleMock, as installed."""

load("//third_party/pkg_config:pkg_config.bzl", "pkg_config_repository")

def googletest_repository(name):
    pkg_config_repository(
        name = name,
        debian_package = "libgtest-dev libgmock-dev",
        targets = {
            "gtest": ["gtest", "gmock"],
            "gtest_main": ["gmock_main", "gmock", "gtest"],
        },
    )
