"""cc_library, cc_binary and cc_test for BUILD files with torch: those that depend on it directly use its precompiled header.

Parsing torch's headers takes g++ 10 to 15 s a file; a precompiled header takes a third to a half of a file's whole time away. It is
made once per configuration, by the flags with which the toolchain compiles everything else, as g++ uses it under equal flags only
(-Winvalid-pch in .bazelrc makes a difference an error).
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_TORCH = "//third_party/libtorch:torch"
_PRECOMPILED = "//third_party/libtorch:precompiled"

# Found through the system includes of _PRECOMPILED. Its name is unlike that of the header in the source tree, which has no
# compiled form beside it.
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

    header = ctx.actions.declare_file("_precompiled/" + _INCLUDED_NAME)
    ctx.actions.symlink(output = header, target_file = ctx.file.hdr)
    compiled = ctx.actions.declare_file("_precompiled/" + _INCLUDED_NAME + ".gch")
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
    if type(deps) == "list" and _TORCH in deps:
        deps = deps + [_PRECOMPILED]
        copts = copts + ["-include", _INCLUDED_NAME]
    rule(deps = deps, copts = copts, **kwargs)

def cc_library(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_library, deps, copts, kwargs)

def cc_binary(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_binary, deps, copts, kwargs)

def cc_test(deps = [], copts = [], **kwargs):
    _with_precompiled(native.cc_test, deps, copts, kwargs)
