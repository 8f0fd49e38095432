"""Pinned wheels of PyPI, unpacked, for repository rules that take files out of them."""

# The files wanted do not depend on the Python version; one is named so that the pinned hashes hold for every Python.
_PLATFORMS = [
    "manylinux1_x86_64",
    "manylinux2014_x86_64",
] + ["manylinux_2_%d_x86_64" % glibc for glibc in (5, 12, 17, 18, 24, 25, 27, 28)]

def fetch_wheels(repository_ctx, requirements, what, without_network):
    """Fetches wheels by pip and unpacks them into the repository's folder, in the shape of site-packages.

    Nothing unpacked is executable.

    Args:
      repository_ctx: of the calling rule.
      requirements: label of a requirements file with hashes.
      what: of which the messages speak.
      without_network: what a user without a network can do, one sentence.
    """
    python = repository_ctx.which("python3")
    if not python:
        fail("\n\npython3 is missing; it fetches {}. Install it with:\n\n    apt-get install python3 python3-pip\n".format(what))
    command = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--python-version=3.12", "--implementation=cp", "--dest=wheels"]
    command += ["--requirement=" + str(repository_ctx.path(requirements))]
    command += ["--platform=" + platform for platform in _PLATFORMS]
    result = repository_ctx.execute(command, timeout = 3600)
    if result.return_code != 0:
        fail("\n\n{} could not be fetched by pip:\n{}\nIf pip is missing: apt-get install python3-pip. {}\n".format(what, result.stderr, without_network))
    for wheel in repository_ctx.path("wheels").readdir():
        result = repository_ctx.execute([python, "-m", "zipfile", "-e", str(wheel), "."], timeout = 1200)
        if result.return_code != 0:
            fail("\n\n{} could not be unpacked (is the disk full?):\n{}".format(wheel, result.stderr))
    repository_ctx.delete("wheels")
