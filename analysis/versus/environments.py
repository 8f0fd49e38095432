"""Finds or creates the Python environment of each framework.

    python3 environments.py pytorch            # prints the existing Python, or fails
    python3 environments.py jax --make         # creates it if it is missing
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

REQUIREMENTS = pathlib.Path(__file__).parent / "requirements"


class NoPython(Exception):
    """No environment was found or could be created; the message has the reason and a remedy."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment in the user's cache with the packages of requirements/NAME.txt, whose first
    line is the framework."""

    name: str
    title: str
    probe: str  # imports the required packages and prints the framework's version
    download: str
    base: str = ""  # environment whose packages are also visible
    variable: str = ""  # environment variable with a Python to use instead
    build: dict = dataclasses.field(default_factory=dict)  # environment variables for pip's compilations
    build_tools: tuple = ()  # packages that pip needs to compile it
    requirements_folder: pathlib.Path = REQUIREMENTS

    @property
    def requirements(self):
        return self.requirements_folder / f"{self.name}.txt"

    def version(self):
        return re.search(r"^\S+==(\S+)", self.requirements.read_text(), re.MULTILINE).group(1)

    def advice(self):
        if self.variable:
            return f"set {self.variable} to a Python where this works: {self.probe}"
        return "leave it out by --frameworks"


ENVIRONMENTS = {environment.name: environment for environment in (
    Environment("pytorch", "PyTorch", "import numpy, safetensors, torch; print(torch.__version__)",
                "about 3 GB, CUDA's libraries among them", variable="RANKWISE_PYTHON"),
    Environment("jax", "JAX", "import numpy, optax, jax; print(jax.__version__)", "about 150 MB"),
    Environment("tensorflow", "TensorFlow", "import numpy, tensorflow; print(tensorflow.__version__)",
                "about 350 MB"),
    Environment("deepspeed", "DeepSpeed", "import torch, deepspeed; print(deepspeed.__version__)",
                "about 5 MB", base="pytorch",
                # Compiled now, with g++: otherwise the first run would compile it, and a killed run would leave a
                # lock that blocks others.
                build={"DS_ACCELERATOR": "cpu", "DS_BUILD_SHM_COMM": "1"},
                build_tools=("wheel==0.45.1",)),
)}


def version_in(python, environment):
    """Returns the framework's version imported by `python` and "", or None and the reason."""
    try:
        probe = subprocess.run([python, "-c", environment.probe], capture_output=True, text=True,
                               check=False)
    except OSError as error:
        return None, str(error)
    if probe.returncode == 0:
        return last_line(probe.stdout), ""
    return None, last_line(probe.stderr)


def last_line(text):
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def same_minor(version, wanted):
    return version is not None and version.split(".")[:2] == wanted.split(".")[:2]


def check_named(python, environment):
    wanted = environment.version()
    version, why = version_in(python, environment)
    if same_minor(version, wanted):
        return python
    found = f"has {environment.title} {version}" if version else why
    raise NoPython(f"{environment.variable}={python}: {found}; {environment.title} {wanted} is what the "
                   "trainers are linked with. Name another, or unset it")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "rankwise"


def run_or_explain(command, hint, environment, **variables):
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=sys.stderr, text=True,
                              check=False, env=os.environ | variables)
    except OSError as error:
        raise NoPython(f"{command[0]}: {error}. {hint}, or {environment.advice()}") from error
    if done.returncode != 0:
        raise NoPython(f"`{' '.join(map(str, command))}` failed: {last_line(done.stderr)}. "
                       f"{hint}, or {environment.advice()}")


def python_in(folder):
    return folder / "bin" / "python"


def site_packages(python):
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def fill(folder, environment):
    python = python_in(folder)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run_or_explain([sys.executable, "-m", "venv", folder],
                   "On Debian, `apt-get install python3-venv`", environment)
    if environment.base:
        base = site_packages(find(ENVIRONMENTS[environment.base]))
        pathlib.Path(site_packages(python), f"{environment.base}.pth").write_text(f"{base}\n")
        # Packages built here import the base's packages, and must not download them again.
        pip += ["--no-build-isolation", "--no-deps"]
    network = "Check the network and the disk's room"
    if environment.build_tools:
        run_or_explain([*pip, *environment.build_tools], network, environment)
    run_or_explain([*pip, "--requirement", environment.requirements], network, environment,
                   **environment.build)
    run_or_explain([python, "-c", environment.probe], "The new environment does not work", environment)


def make_environment(folder, environment):
    """Creates a virtual environment with the required packages, atomically."""
    finished = folder / "requirements.txt"
    print(f"versus: making a Python environment with {environment.title} {environment.version()}, once, in "
          f"{folder}: pip fetches {environment.download} from PyPI. Otherwise, {environment.advice()}.",
          file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        fill(folder, environment)
        shutil.copyfile(environment.requirements, finished)
    finally:
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
    return str(python_in(folder))


def find(environment, make=make_environment):
    """Returns the Python in the environment's variable; or, for an environment with such a variable, the
    current Python if it has the framework; or the one in the user's cache, created if `make`."""
    wanted = environment.version()
    if named := os.environ.get(environment.variable or "-"):
        return check_named(named, environment)
    if environment.variable and same_minor(version_in(sys.executable, environment)[0], wanted):
        return sys.executable
    folder = cache_folder() / f"{environment.name}-{wanted}"
    finished = folder / "requirements.txt"
    if finished.exists() and finished.read_text() == environment.requirements.read_text():
        return str(python_in(folder))
    return make(folder, environment)


def refuse(folder, environment):
    raise NoPython(f"there is no Python with {environment.title} {environment.version()} at "
                   f"{python_in(folder)}; --make makes it, or {environment.advice()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(ENVIRONMENTS))
    parser.add_argument("--make", action="store_true", help="make it if it is missing")
    args = parser.parse_args()
    try:
        print(find(ENVIRONMENTS[args.name], make_environment if args.make else refuse))
    except NoPython as none:
        sys.exit(str(none))


if __name__ == "__main__":
    main()
