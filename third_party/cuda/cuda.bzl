"""Rules for code that calls CUDA or NCCL: cuda_library, a cc_library of .cu files, and cuda_objects, object files of .cc files.

Under --config=cuda a cuda_library's sources are compiled by nvcc and linked with LibTorch's CUDA runtime. Without it the library
consists of its headers, and nvcc is not fetched.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//third_party/libtorch:precompiled.bzl", "cc_library")

_CUDA = "//third_party/libtorch:cuda"

# Machine code for A100, H100/H200 and B200 (also for later cards of the same major numbers), and PTX from which a driver compiles
# code for later architectures.
_ARCHITECTURES = ["80", "90", "100"]
_GENCODE = ["-gencode=arch=compute_{0},code=sm_{0}".format(sm) for sm in _ARCHITECTURES] + [
    "-gencode=arch=compute_{0},code=compute_{0}".format(_ARCHITECTURES[-1]),
]

def if_cuda(labels):
    """Returns `labels` under --config=cuda, else []."""
    return select({
        _CUDA: labels,
        "//conditions:default": [],
    })

def _arguments(ctx, context, host_compiler, source, output):
    arguments = ctx.actions.args()
    arguments.add("-c", source)
    arguments.add("-o", output)
    arguments.add("-ccbin", host_compiler)
    arguments.add_all(["-std=c++20", "-O3", "--Werror=all-warnings", "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror"])
    arguments.add_all(_GENCODE)
    arguments.add_all(context.defines, before_each = "-D")
    arguments.add_all(context.local_defines, before_each = "-D")
    arguments.add("-I.")
    arguments.add_all(context.quote_includes, before_each = "-I")
    arguments.add_all(context.includes, before_each = "-I")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    return arguments

def _nvcc_objects_impl(ctx):
    if not ctx.file.nvcc:
        return [DefaultInfo(files = depset())]
    toolchain = find_cpp_toolchain(ctx)
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    objects = []
    for source in ctx.files.srcs:
        output = ctx.actions.declare_file("_cuda/{}/{}.o".format(ctx.label.name, source.basename))
        ctx.actions.run(
            executable = ctx.file.nvcc,
            arguments = [_arguments(ctx, context, toolchain.compiler_executable, source, output)],
            inputs = depset([source] + ctx.files.hdrs, transitive = [context.headers, toolchain.all_files, depset(ctx.files.toolkit)]),
            outputs = [output],
            mnemonic = "CudaCompile",
            progress_message = "Compiling " + source.short_path,
            # nvcc finds the host compiler's tools through PATH.
            use_default_shell_env = True,
        )
        objects.append(output)
    return [DefaultInfo(files = depset(objects))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "nvcc": attr.label(allow_single_file = True, doc = "unset without --config=cuda; then there are no objects"),
        "toolkit": attr.label(allow_files = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs, hdrs, deps = [], **kwargs):
    """A cc_library of .cu files that is empty without --config=cuda.

    Args:
      name: name of the library.
      srcs: .cu files. Headers that they include must be in hdrs or deps, so that a change recompiles them.
      hdrs: headers without CUDA, for host code of both builds.
      deps: cc_library targets.
      **kwargs: arguments of cc_library.
    """
    objects = name + "_objects"
    _nvcc_objects(
        name = objects,
        srcs = srcs,
        hdrs = hdrs,
        nvcc = select({
            _CUDA: "@nvcc//:cuda/bin/nvcc",
            "//conditions:default": None,
        }),
        toolkit = select({
            _CUDA: "@nvcc//:toolkit",
            "//conditions:default": None,
        }),
        visibility = ["//visibility:private"],
        deps = deps,
    )
    native.cc_library(
        name = name,
        srcs = if_cuda([objects]),
        hdrs = hdrs,
        deps = deps + if_cuda(["//third_party/libtorch:libraries"]),
        **kwargs
    )

def cuda_objects(name, srcs, hdrs, deps = []):
    """Compiles .cc files that call CUDA or NCCL to objects, for the srcs of a library; empty without --config=cuda.

    A cc_library would propagate CUDA's include paths and defines to its dependents, which would then be compiled once per build.

    Args:
      name: name of the objects.
      srcs: .cc files.
      hdrs: headers of that library that the sources include.
      deps: cc_library targets.
    """
    compiled = name + "_compiled"
    cc_library(
        name = compiled,
        srcs = if_cuda(srcs + hdrs),
        visibility = ["//visibility:private"],
        deps = deps + ["//third_party/libtorch:cuda_headers"],
    )
    native.filegroup(
        name = name,
        srcs = [compiled],
        output_group = "compilation_outputs",
        visibility = ["//visibility:private"],
    )
