"""nvcc of CUDA 13.0: an installed one, else out of the pinned wheels of PyPI.

The release is the one of the CUDA runtime that LibTorch brings: code that a newer nvcc compiles may ask for functions that
this runtime, or a PTX version that its driver, does not know.
"""

load("//third_party/pip:wheels.bzl", "fetch_wheels")

_RELEASE = "13.0"

def _release_of(repository_ctx, nvcc):
    """ "13.0", or "" for what is no nvcc."""
    if not repository_ctx.path(nvcc).exists:
        return ""
    result = repository_ctx.execute([nvcc, "--version"])
    for line in result.stdout.splitlines():
        if "release " in line:
            return line.split("release ")[1].split(",")[0]
    return ""

def _home_of(repository_ctx, nvcc):
    """The toolkit's folder, as nvcc itself reports it: the one in PATH may be a link or a script."""
    result = repository_ctx.execute([nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"])
    for line in result.stderr.splitlines():
        if line.startswith("#$ TOP="):
            return str(repository_ctx.path(line[len("#$ TOP="):]))
    return ""

def _installed_home(repository_ctx):
    """The folder of an installed toolkit of our release, or "". CUDA_HOME that names none is an error."""
    named = repository_ctx.os.environ.get("CUDA_HOME", "")
    if named:
        release = _release_of(repository_ctx, named + "/bin/nvcc")
        if release != _RELEASE:
            fail("\n\nCUDA_HOME={path} holds {what}; wanted: CUDA {wanted}, the release of LibTorch's CUDA runtime.\nUnset CUDA_HOME, or set RANKWISE_FETCH_NVCC=1, to fetch the pinned one.\n".format(
                path = named,
                what = "nvcc " + release if release else "no bin/nvcc that runs",
                wanted = _RELEASE,
            ))
        return named
    homes = ["/usr/local/cuda"]
    in_path = repository_ctx.which("nvcc")
    if in_path:
        homes.append(_home_of(repository_ctx, in_path))
    for home in homes:
        if home and _release_of(repository_ctx, home + "/bin/nvcc") == _RELEASE:
            return home
    return ""

def _fetch(repository_ctx):
    fetch_wheels(
        repository_ctx,
        requirements = repository_ctx.attr.requirements,
        what = "nvcc",
        without_network = "Without a network, set CUDA_HOME to the folder of an installed CUDA {}.".format(_RELEASE),
    )
    home = repository_ctx.path("nvidia/cu13")
    programs = home.get_child("bin").readdir() + home.get_child("nvvm").get_child("bin").readdir()
    result = repository_ctx.execute(["chmod", "+x"] + [str(program) for program in programs])
    if result.return_code != 0:
        fail("\n\nnvcc could not be made executable:\n" + result.stderr)
    return home

def _nvcc_impl(repository_ctx):
    fetch = repository_ctx.os.environ.get("RANKWISE_FETCH_NVCC", "")
    if fetch not in ["", "0", "1"]:
        fail("\n\nRANKWISE_FETCH_NVCC={}: must be 0 or 1\n".format(fetch))
    home = "" if fetch == "1" else _installed_home(repository_ctx)
    repository_ctx.symlink(home if home else _fetch(repository_ctx), "cuda")

    # An installed toolkit has its headers by target, and `include` is a link to them.
    by_target = "cuda/targets/x86_64-linux/include"
    include = by_target if repository_ctx.path(by_target).exists else "cuda/include"
    repository_ctx.template("BUILD", repository_ctx.attr.build_file, {"{include}": include}, executable = False)

_nvcc_repository = repository_rule(
    implementation = _nvcc_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "requirements": attr.label(mandatory = True, allow_single_file = True, doc = "pinned wheels with hashes"),
    },
    environ = ["CUDA_HOME", "RANKWISE_FETCH_NVCC"],
    doc = "cuda/bin/nvcc and :toolkit, the files that it needs. RANKWISE_FETCH_NVCC=1 takes the wheels even where one is installed.",
)

def nvcc_repository(name):
    _nvcc_repository(
        name = name,
        build_file = Label("//third_party/cuda:nvcc.BUILD"),
        requirements = Label("//third_party/cuda:requirements.txt"),
    )
