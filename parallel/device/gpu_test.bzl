"""Tests that need GPUs: `bazel test --config=cuda --test_tag_filters=requires-gpu //...` runs them all."""

def gpu_test(name, deps = [], tags = [], size = "small", **kwargs):
    """A cc_test that skips itself, with the reason, if GPUs are missing (parallel/device/require_gpus.h).

    It builds and skips without CUDA, too. Runs alone, since tests do not share GPUs. Add it to
    tests/gpu/gpu_tests.bzl as well, so that it is packed for machines without Bazel.
    """
    native.cc_test(
        name = name,
        size = size,
        tags = tags + ["exclusive", "requires-gpu"],
        deps = deps + ["//parallel/device:require_gpus"],
        visibility = ["//tests/gpu:__pkg__"],
        **kwargs
    )
