"""Tests of virtual GPUs: `bazel test --config=virtual_gpu //...` runs them and the GPU tests."""

# Builds without CUDA skip targets that are compatible only with CUDA.
ONLY_WITH_CUDA = select({
    "//third_party/libtorch:cuda": [],
    "//conditions:default": ["//tests/virtual_gpu:with_cuda"],
})

def virtual_gpu_test(name, **kwargs):
    """A cc_test that skips itself without virtual GPUs. One runs at a time, as its programs start several ranks."""
    native.cc_test(
        name = name,
        tags = ["exclusive", "virtual-gpu"],
        target_compatible_with = ONLY_WITH_CUDA,
        **kwargs
    )
