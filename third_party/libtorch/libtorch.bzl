"""LibTorch 2.11: an installed one where there is one, else the pinned wheels of PyPI.

Both end as one folder in the shape of site-packages (torch/, nvidia/): the libraries find each other by paths relative
to themselves, so they are linked from that folder and not through copies or per-library links.
"""

load("//third_party/pip:wheels.bzl", "fetch_wheels")

_VERSION = "2.11"

def _installed_torch(repository_ctx):
    """The folder of an installed torch of our version, or None. TORCH_PATH that names none is an error."""
    named = repository_ctx.os.environ.get("TORCH_PATH", "")
    if named:
        folder = repository_ctx.path(named)
        version = _version_of(repository_ctx, folder)
        if not version.startswith(_VERSION + "."):
            fail("\n\nTORCH_PATH={path} holds {what}; wanted: the folder `torch` of LibTorch or PyTorch {version}.\nUnset TORCH_PATH to fetch the pinned one.\n".format(
                path = named,
                what = "torch " + version if version else "no torch/version.py",
                version = _VERSION,
            ))
        return folder
    python = repository_ctx.which("python3")
    if not python:
        return None
    found = repository_ctx.execute([
        python,
        "-c",
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s and s.origin else '')",
    ])
    location = found.stdout.strip()
    if found.return_code != 0 or not location:
        return None
    folder = repository_ctx.path(location)
    return folder if _version_of(repository_ctx, folder).startswith(_VERSION + ".") else None

def _version_of(repository_ctx, folder):
    file = folder.get_child("version.py")
    if not file.exists:
        return ""
    for line in repository_ctx.read(file).splitlines():
        if line.startswith("__version__"):
            return line.split("=")[-1].strip(" '\"")
    return ""

def _libtorch_impl(repository_ctx):
    # First, as fetching the other repository starts this function again.
    headers_version = ""
    if repository_ctx.attr.headers_of:
        headers_version = _version_of(repository_ctx, repository_ctx.path(repository_ctx.attr.headers_of).dirname)
    torch = _installed_torch(repository_ctx)
    if torch and all([repository_ctx.path(str(torch) + "/" + file).exists for file in repository_ctx.attr.witnesses]):
        site_packages = torch.dirname
        repository_ctx.symlink(torch, "torch")
        nvidia = site_packages.get_child("nvidia")
        if nvidia.exists:
            repository_ctx.symlink(nvidia, "nvidia")
    else:
        fetch_wheels(
            repository_ctx,
            requirements = repository_ctx.attr.requirements,
            what = "LibTorch",
            without_network = "Without a network, set TORCH_PATH to the folder `torch` of an installed PyTorch {}.".format(_VERSION),
        )
        site_packages = repository_ctx.path(".")
    repository_ctx.template("BUILD", repository_ctx.attr.build_file, {
        "{headers}": "@libtorch_cpu//:headers" if headers_version == _version_of(repository_ctx, repository_ctx.path("torch")) else ":own_headers",
        "{site_packages}": str(site_packages),
    }, executable = False)

def _libtorch_rule(witnesses):
    return repository_rule(
        implementation = _libtorch_impl,
        attrs = {
            "build_file": attr.label(mandatory = True, allow_single_file = True),
            "requirements": attr.label(mandatory = True, allow_single_file = True, doc = "pinned wheels with hashes"),
            "headers_of": attr.label(doc = "version.py of the torch whose headers are used if it is the same version as the one here"),
            "witnesses": attr.string_list(default = witnesses, doc = "files, relative to torch/, that an installed torch must have to be used"),
        },
        environ = ["TORCH_PATH"],
        doc = "The targets :headers and :libraries, and with CUDA :cuda_headers, of the LibTorch that is installed or fetched.",
    )

_libtorch_cpu_repository = _libtorch_rule(["lib/libtorch_cpu.so"])

_libtorch_cuda_repository = _libtorch_rule([
    "lib/libtorch_cuda.so",
    "../nvidia/nccl/include/nccl.h",
    "../nvidia/cu13/include/cuda_runtime_api.h",
])

def libtorch_cpu_repository(name):
    _libtorch_cpu_repository(
        name = name,
        build_file = Label("//third_party/libtorch:libtorch_cpu.BUILD"),
        requirements = Label("//third_party/libtorch:requirements-cpu.txt"),
    )

def libtorch_cuda_repository(name):
    _libtorch_cuda_repository(
        name = name,
        build_file = Label("//third_party/libtorch:libtorch_cuda.BUILD"),
        headers_of = "@libtorch_cpu//:torch/version.py",
        requirements = Label("//third_party/libtorch:requirements-cuda.txt"),
    )
