"""unit_tests: a small test target for each test file of a package."""

load("//third_party/libtorch:precompiled.bzl", "cc_test")

def unit_tests(srcs, deps, **kwargs):
    """A small cc_test of its own for each file of `srcs`, named after it: a/b_test.cc is the target a:b_test."""
    for src in srcs:
        cc_test(
            name = src[:-len(".cc")],
            size = "small",
            srcs = [src],
            deps = deps + ["@gtest//:gtest_main"],
            **kwargs
        )
