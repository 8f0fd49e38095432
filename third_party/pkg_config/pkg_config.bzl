"""Repositories for system libraries that pkg-config finds."""

def _flags(repository_ctx, option, modules):
    result = repository_ctx.execute(["pkg-config", option] + modules)
    if result.return_code != 0:
        fail("\n\n{name}: pkg-config does not know {modules}:\n{error}\nInstall it with:\n\n    apt-get install pkg-config {package}\n".format(
            name = repository_ctx.name,
            modules = " ".join(modules),
            error = result.stderr.strip(),
            package = repository_ctx.attr.debian_package,
        ))
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _pkg_config_repository_impl(repository_ctx):
    if not repository_ctx.which("pkg-config"):
        fail("\n\npkg-config is missing. Install it with:\n\n    apt-get install pkg-config\n")
    rules = ["package(default_visibility = [\"//visibility:public\"])"]
    for target, modules in repository_ctx.attr.targets.items():
        # The compiler already knows /usr/include and its ABI's language level.
        compile_flags = [
            flag
            for flag in _flags(repository_ctx, "--cflags", modules)
            if not flag.startswith("-std=") and flag != "-I/usr/include"
        ]
        rules.append("cc_library(\n    name = {name},\n    defines = {defines},\n    linkopts = {linkopts},\n    deps = {deps},\n)".format(
            name = repr(target),
            defines = repr([flag[2:] for flag in compile_flags if flag.startswith("-D")]),
            deps = repr(repository_ctx.attr.deps.get(target, [])),
            linkopts = repr(repository_ctx.attr.linkopts.get(target, []) + _flags(repository_ctx, "--libs", modules)),
        ))
    repository_ctx.file("BUILD", "\n\n".join(rules) + "\n")

pkg_config_repository = repository_rule(
    implementation = _pkg_config_repository_impl,
    attrs = {
        "targets": attr.string_list_dict(mandatory = True, doc = "cc_library name -> pkg-config modules"),
        "linkopts": attr.string_list_dict(doc = "additional link options before the modules' own"),
        "deps": attr.string_list_dict(doc = "additional dependencies of a target"),
        "debian_package": attr.string(mandatory = True, doc = "package to install if a module is missing"),
    },
    local = True,
    doc = "cc_library targets for installed libraries; a missing one fails with the command that installs it.",
)
