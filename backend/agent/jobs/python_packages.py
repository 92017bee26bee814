"""The Python of jobs: its version, packages, and the virtual environment of ``deploy --venv``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .. import system
from ..protocol import Answer, Request
from .folders import DISK_FULL, HOME, RefusedError, package_of

MIN_PYTHON = (3, 10)


def make_environment(request: Request) -> Answer:
    package, venv = package_of(request), HOME / "venv"
    python = venv / "bin" / "python3"
    is_new = not (venv / "bin" / "pip").exists()
    if is_new:
        made = system.run([_base_python(), "-m", "venv", "--clear", str(venv)])
        if made.returncode:
            raise RefusedError(
                f"no virtual environment can be made: {_last_line(made)}; on Debian:"
                " apt-get install python3-venv"
            )
    wheels = package / "wheels"
    where = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []
    wanted = ["--requirement", str(package / "requirements.txt"), *request["also"]]
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *where, *wanted]
    installed = system.run(pip)
    if installed.returncode and is_new:
        # Jobs prefer this environment: an empty one would hide the packages of the board's Python.
        shutil.rmtree(venv, ignore_errors=True)
    if "No space left" in installed.stdout:
        raise RefusedError(DISK_FULL)
    if installed.returncode:
        remedy = (
            "put the wheels of this board's Python and architecture into the package:"
            " rankslice build --wheels, then rankslice deploy OUT --venv; or rankslice profile"
            " --wheels"
        )
        raise RefusedError(f"pip could not install: {_last_line(installed)}; {remedy}")
    return {}


def _base_python() -> str:
    in_own_venv = Path(sys.prefix) == HOME / "venv"
    return str(Path(sys.base_prefix) / "bin" / "python3") if in_own_venv else sys.executable


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    return errors[-1] if errors else f"exit code {ended.returncode}"


def python_problems() -> list[str]:
    if sys.version_info >= MIN_PYTHON:
        return []
    return [f"its Python is {platform.python_version()}, and 3.10 or later is needed"]


def requirement_problems(request: Request) -> list[str]:
    return [
        f"{complaint}; install it there: rankslice deploy OUT --venv"
        for requirement in request["requirements"]
        for complaint in _complaints_about(requirement, request["stand_ins"])
    ]


def _complaints_about(requirement: str, stand_ins: dict[str, str]) -> Iterator[str]:
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:(>=|==)\s*([0-9.]+))?", requirement.strip())
    if match is None:
        return
    name, relation, wanted = match.groups()
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if not _has_module(stand_ins.get(name, name.replace("-", "_"))):
            yield f"{sys.executable} has no {name}"
        return
    if relation == ">=" and _numbers(installed) < _numbers(wanted):
        yield f"{sys.executable} has {name} {installed}, and {wanted} or later is needed"
    if relation == "==" and _numbers(installed) != _numbers(wanted):
        yield f"{sys.executable} has {name} {installed}, and {wanted} is needed"


def _has_module(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]
