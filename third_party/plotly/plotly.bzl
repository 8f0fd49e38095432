"""plotly.min.js 4.1.1, which draws the report's pictures: an installed file where one is named, else out of the pinned wheel of PyPI."""

def _fetch(repository_ctx):
    python = repository_ctx.which("python3")
    if not python:
        fail("\n\npython3 is missing; it fetches plotly.min.js. Install it with:\n\n    apt-get install python3 python3-pip\n")
    command = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--python-version=3.12", "--dest=wheels"]
    command += ["--requirement=" + str(repository_ctx.path(repository_ctx.attr.requirements))]
    result = repository_ctx.execute(command, timeout = 600)
    if result.return_code != 0:
        fail("\n\nplotly.min.js could not be fetched by pip:\n{error}\nIf pip is missing: apt-get install python3-pip. ".format(error = result.stderr) +
             "Without a network, set PLOTLY_JS to the path of a plotly.min.js.\n")
    for wheel in repository_ctx.path("wheels").readdir():
        result = repository_ctx.execute([python, "-m", "zipfile", "-e", str(wheel), "unpacked"], timeout = 600)
        if result.return_code != 0:
            fail("\n\n{wheel} could not be unpacked (is the disk full?):\n{error}".format(wheel = wheel, error = result.stderr))
    repository_ctx.delete("wheels")
    repository_ctx.symlink("unpacked/plotly/package_data/plotly.min.js", "plotly.min.js")
    repository_ctx.symlink("unpacked/plotly-{}.dist-info/licenses/LICENSE.txt".format(repository_ctx.attr.version), "LICENSE.txt")

def _plotly_impl(repository_ctx):
    named = repository_ctx.os.environ.get("PLOTLY_JS", "")
    if named:
        if not repository_ctx.path(named).exists:
            fail("\n\nPLOTLY_JS={} does not exist. Unset it to fetch the pinned one.\n".format(named))
        repository_ctx.symlink(named, "plotly.min.js")
    else:
        _fetch(repository_ctx)
    repository_ctx.symlink(repository_ctx.attr.build_file, "BUILD")

_plotly_repository = repository_rule(
    implementation = _plotly_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "requirements": attr.label(mandatory = True, allow_single_file = True, doc = "the pinned wheel with its hash"),
        "version": attr.string(mandatory = True, doc = "of that wheel, as its folders are named"),
    },
    environ = ["PLOTLY_JS"],
    doc = "One target, :plotly_js, a file plotly.min.js; its licence (MIT) lies beside it as LICENSE.txt and heads the file itself.",
)

def plotly_repository(name):
    _plotly_repository(
        name = name,
        build_file = "//third_party/plotly:plotly.BUILD",
        requirements = "//third_party/plotly:requirements.txt",
        version = "7.1.0",
    )
