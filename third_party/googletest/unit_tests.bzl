"""unit_tests: a test target for each test file of a package."""

load("//third_party/libtorch:precompiled.bzl", "cc_test")

def unit_tests(srcs, deps, size = "small", **kwargs):
    """Declares a cc_test for each file of `srcs`, named after it: a/b_test.cc is the target a:b_test."""
    for src in srcs:
        cc_test(
            name = src[:-len(".cc")],
            size = size,
            srcs = [src],
            deps = deps + ["@gtest//:gtest_main"],
            **kwargs
        )
