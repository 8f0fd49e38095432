"""Tests that need GPUs: `bazel test --config=cuda --test_tag_filters=requires-gpu //...` runs them all."""

def gpu_test(name, deps = [], tags = [], size = "small", **kwargs):
    """A cc_test that skips itself where GPUs are missing, saying why (parallel/device/require_gpus.h).

    It builds and skips without CUDA, too. One runs at a time: GPUs are not shared between tests.
    """
    native.cc_test(
        name = name,
        size = size,
        tags = tags + ["exclusive", "requires-gpu"],
        deps = deps + ["//parallel/device:require_gpus"],
        **kwargs
    )
