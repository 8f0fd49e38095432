"""The headers of a folder `torch` as a target, for the BUILD files of libtorch.bzl's repositories."""

def torch_headers(name):
    native.cc_library(
        name = name,
        hdrs = native.glob([
            "torch/include/**/*.h",
            "torch/include/**/*.hpp",
            "torch/include/**/*.cuh",
        ]),
        defines = [
            # Without these, c10d's headers are empty.
            "USE_C10D",
            "USE_C10D_GLOO",
            "USE_DISTRIBUTED",
        ],
        includes = [
            "torch/include",
            "torch/include/torch/csrc/api/include",
        ],
    )
