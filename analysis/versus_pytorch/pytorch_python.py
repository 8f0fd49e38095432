"""Finds a Python that has PyTorch, or makes one. As a program: prints the one that is there, if any."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

REQUIREMENTS = pathlib.Path(__file__).parent / "requirements.txt"
PROBE = "import numpy, safetensors, torch; print(torch.__version__)"
HOW_TO_NAME_ONE = "set RANKWISE_PYTHON to a Python that imports torch, numpy and safetensors"


class NoPython(Exception):
    """There is none, and none could be made; says why and what to do."""


def wanted_version(requirements=REQUIREMENTS):
    return re.search(r"^torch==(\S+)", requirements.read_text(), re.MULTILINE).group(1)


def torch_of(python):
    """The version of torch that `python` imports, and "", or None and why there is none."""
    try:
        probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    except OSError as error:
        return None, str(error)
    if probe.returncode == 0:
        return probe.stdout.strip(), ""
    return None, last_line(probe.stderr)


def last_line(text):
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def same_minor(version, wanted):
    return version is not None and version.split(".")[:2] == wanted.split(".")[:2]


def check_named(python, wanted):
    version, why = torch_of(python)
    if same_minor(version, wanted):
        return python
    found = f"has torch {version}" if version else why
    raise NoPython(f"RANKWISE_PYTHON={python}: {found}; torch {wanted} is what the trainers "
                   "are linked with. Name another, or unset it")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "rankwise"


def run_or_explain(command, hint):
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=sys.stderr, text=True,
                              check=False)
    except OSError as error:
        raise NoPython(f"{command[0]}: {error}. {hint}, or {HOW_TO_NAME_ONE}") from error
    if done.returncode != 0:
        raise NoPython(f"`{' '.join(map(str, command))}` failed: {last_line(done.stderr)}. "
                       f"{hint}, or {HOW_TO_NAME_ONE}")


def python_in(folder):
    return folder / "bin" / "python"


def make_environment(folder, requirements):
    """A virtual environment with what `requirements` lists; made whole or not at all."""
    python, finished = python_in(folder), folder / "requirements.txt"
    print(f"versus_pytorch: python3 has no PyTorch {wanted_version(requirements)}. Making an "
          f"environment that has, once, in {folder}: pip fetches about 3 GB from PyPI, CUDA's "
          f"libraries among them. To use another, {HOW_TO_NAME_ONE}.", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run_or_explain([sys.executable, "-m", "venv", folder],
                       "On Debian, `apt-get install python3-venv`")
        run_or_explain([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--requirement", requirements], "Check the network and the disk's room")
        run_or_explain([python, "-c", PROBE], "The new environment does not work")
        shutil.copyfile(requirements, finished)
    finally:
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
    return str(python)


def find(requirements=REQUIREMENTS, make=make_environment):
    """$RANKWISE_PYTHON; or this Python, where it has PyTorch; or one in the user's cache, which is
    made by `make` if it is missing."""
    wanted = wanted_version(requirements)
    named = os.environ.get("RANKWISE_PYTHON")
    if named:
        return check_named(named, wanted)
    if same_minor(torch_of(sys.executable)[0], wanted):
        return sys.executable
    folder = cache_folder() / f"pytorch-{wanted}"
    finished = folder / "requirements.txt"
    if finished.exists() and finished.read_text() == requirements.read_text():
        return str(python_in(folder))
    return make(folder, requirements)


def refuse(folder, requirements):
    raise NoPython(f"there is no Python with PyTorch {wanted_version(requirements)}, neither python3 "
                   f"nor {python_in(folder)}; {HOW_TO_NAME_ONE}")


if __name__ == "__main__":
    try:
        print(find(make=refuse))
    except NoPython as none:
        sys.exit(str(none))
