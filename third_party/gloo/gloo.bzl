"""Gloo's headers, as installed: LibTorch contains the library, but its wheel omits the headers.

Debian's headers are older than the Gloo inside LibTorch, so they are for declarations only: never call Gloo
directly, and use its types only through the pointers that c10d provides.
"""

def _gloo_headers_repository_impl(repository_ctx):
    if not repository_ctx.path("/usr/include/gloo/algorithm.h").exists:
        fail("\n\nGloo's headers are missing. Install them with:\n\n    apt-get install libgloo-dev\n")
    repository_ctx.file("BUILD", "\n".join([
        "package(default_visibility = [\"//visibility:public\"])",
        "",
        "# /usr/include is on the compiler's path already.",
        "cc_library(name = \"gloo_headers\")",
        "",
    ]))

gloo_headers_repository = repository_rule(
    implementation = _gloo_headers_repository_impl,
    local = True,
)
