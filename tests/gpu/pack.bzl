"""Programs with what they need at run time, in one archive for machines without Bazel."""

def _pack_impl(ctx):
    lines = []
    inputs = []
    for kind, targets in [("test", ctx.attr.tests), ("program", ctx.attr.programs), ("script", ctx.attr.scripts)]:
        for target in targets:
            info = target[DefaultInfo]
            if kind == "script":
                programs, runfiles = info.files.to_list(), []
            else:
                programs, runfiles = [info.files_to_run.executable], info.default_runfiles.files.to_list()
            for file in programs:
                lines.append("\t".join([kind, file.short_path, file.path]))
            for file in runfiles:
                # Other repositories' files are found by the linked-in paths, or come with PyTorch.
                if file not in programs and not file.short_path.startswith("../"):
                    lines.append("\t".join(["data", file.short_path, file.path]))
            inputs += programs + runfiles
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "\n".join(lines) + "\n")
    ctx.actions.run(
        executable = ctx.executable._packer,
        arguments = [manifest.path, ctx.file.run.path, ctx.attr.configuration, ctx.outputs.archive.path],
        inputs = depset(inputs + [manifest, ctx.file.run]),
        outputs = [ctx.outputs.archive],
        use_default_shell_env = True,
        mnemonic = "Pack",
        progress_message = "Packing %s" % ctx.label,
    )
    return [DefaultInfo(
        files = depset([ctx.outputs.archive]),
        runfiles = ctx.runfiles(files = [ctx.outputs.archive]),
    )]

pack = rule(
    implementation = _pack_impl,
    attrs = {
        "tests": attr.label_list(doc = "cc_tests that skip themselves where GPUs are missing"),
        "programs": attr.label_list(doc = "binaries that `run` starts with flags of its own"),
        "scripts": attr.label_list(allow_files = True, doc = "Python files in addition to `run`'s own folder"),
        "run": attr.label(mandatory = True, allow_single_file = True, doc = "what the archive is started by"),
        "configuration": attr.string(mandatory = True, doc = "cuda or cpu"),
        "_packer": attr.label(default = "//tests/gpu:packer", executable = True, cfg = "host"),
    },
    outputs = {"archive": "%{name}.tar.xz"},
    doc = "NAME.tar.xz: one folder `rankwise` in the shape of the runfiles, with `run`, `contents` and `lib`.",
)
