"""plotly.min.js 4.1.1, which draws the report's pictures: an installed file where one is named, else out of the pinned wheel of PyPI."""

load("//third_party/pip:wheels.bzl", "fetch_wheels")

def _fetch(repository_ctx):
    fetch_wheels(
        repository_ctx,
        requirements = repository_ctx.attr.requirements,
        what = "plotly.min.js",
        without_network = "Without a network, set PLOTLY_JS to the path of a plotly.min.js.",
    )
    repository_ctx.symlink("plotly/package_data/plotly.min.js", "plotly.min.js")
    repository_ctx.symlink("plotly-{}.dist-info/licenses/LICENSE.txt".format(repository_ctx.attr.version), "LICENSE.txt")

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
    doc = "One target, :plotly_js, a file plotly.min.js; its licence (MIT) is next to it as LICENSE.txt and heads the file itself.",
)

def plotly_repository(name):
    _plotly_repository(
        name = name,
        build_file = Label("//third_party/plotly:plotly.BUILD"),
        requirements = Label("//third_party/plotly:requirements.txt"),
        version = "7.1.0",
    )
