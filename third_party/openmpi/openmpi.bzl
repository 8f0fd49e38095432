"""OpenMPI's and PMIx's headers, if installed: --backend=mpi is optional.

The libraries are loaded when the backend is used, so that the binaries also start on machines without OpenMPI.
"""

def _include_folder(repository_ctx, module):
    if not repository_ctx.which("pkg-config"):
        return None
    result = repository_ctx.execute(["pkg-config", "--variable=includedir", module])
    return result.stdout.strip() if result.return_code == 0 else None

def _openmpi_repository_impl(repository_ctx):
    folders = {name: _include_folder(repository_ctx, module) for name, module in [("mpi", "ompi-c"), ("pmix", "pmix")]}
    available = all(folders.values())
    repository_ctx.file("available.bzl", "HAS_OPENMPI = %s\n" % available)
    if available:
        for name, folder in folders.items():
            repository_ctx.symlink(folder, name)
    repository_ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["mpi/*.h", "pmix/*.h"]),
    includes = {includes},
)
""".format(includes = repr(["mpi", "pmix"] if available else [])))

openmpi_repository = repository_rule(
    implementation = _openmpi_repository_impl,
    local = True,
    doc = "The target `headers`; available.bzl records whether there are any (Debian: libopenmpi-dev).",
)
