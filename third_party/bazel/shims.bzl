"""Repositories that Debian's Bazel 4.2.3 needs to work without internet access.

Bazel's own WORKSPACE suffix fetches these repositories unless the workspace declares them first. Debian ships the
sources of some (bazel-platforms, bazel-rules-java, bazel-rules-proto); the folders next to this file
replace the others, of which little is needed.
"""

_DEBIAN_RULES = "/usr/share/bazel"

def bazel_4_2_shims(path):
    """Declares the repositories. `path`: path from the main workspace to this repository."""
    native.local_repository(
        name = "rules_cc",
        path = path + "/third_party/bazel/rules_cc",
    )
    native.local_repository(
        name = "remote_coverage_tools",
        path = path + "/third_party/bazel/remote_coverage_tools",
    )
    native.local_repository(
        name = "platforms",
        path = _DEBIAN_RULES + "/platforms",
    )
    native.local_repository(
        name = "rules_java",
        path = _DEBIAN_RULES + "/rules/java",
    )
    native.local_repository(
        name = "rules_proto",
        path = _DEBIAN_RULES + "/rules/proto",
    )
