"""cc_library, cc_binary and cc_test for BUILD files with torch: targets that depend on it directly use its precompiled header.

Parsing torch's headers takes g++ 10 to 15 s per file; a precompiled header saves a third to a half of a file's total time. It is
built once per configuration, with the flags that the toolchain uses for all other files, since g++ requires equal flags
(-Winvalid-pch in .bazelrc makes a difference an error). There are two, because each file pays for the contents of its precompiled
header: g++ instantiates the templates that its inline functions call in every file.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# By the target in the deps; the first match counts.
_PRECOMPILED = {
    "//third_party/libtorch:nn": "//third_party/libtorch:precompiled_nn",
    "//third_party/libtorch:torch": "//third_party/libtorch:precompiled",
}

# Found through the system includes of the targets above. The name differs from those of the headers in the source tree, which have
# no compiled form next to them.
_INCLUDED_NAME = "rankwise_torch_precompiled.h"

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = merged.compilation_context

    folder = "_%s/" % ctx.label.name
    header = ctx.actions.declare_file(folder + _INCLUDED_NAME)
    ctx.actions.symlink(output = header, target_file = ctx.file.hdr)
    compiled = ctx.actions.declare_file(folder + _INCLUDED_NAME + ".gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ["-x", "c++-header"],
        source_file = ctx.file.hdr.path,
        output_file = compiled.path,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = "c++-compile"),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = variables,
        ),
        inputs = depset([ctx.file.hdr], transitive = [context.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling torch's headers",
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, compiled]),
        system_includes = depset([header.dirname]),
    ))
    return [cc_common.merge_cc_infos(cc_infos = [own, merged])]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "hdr": attr.label(mandatory = True, allow_single_file = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _with_precompiled(rule, deps, copts, kwargs):
    for torch, precompiled in _PRECOMPILED.items():
        if type(deps) == "list" and torch in deps:
            deps = deps + [precompiled]
            copts = copts + ["-include", _INCLUDED_NAME]
            break
    rule(deps = deps, copts = copts, **kwargs)

def cc_library(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_library, deps, copts, kwargs)

def cc_binary(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_binary, deps, copts, kwargs)

def cc_test(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_test, deps, copts, kwargs)
