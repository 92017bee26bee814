"""What pip would install of each extra on a board of aarch64, for which nothing is compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rankslice.backend.wheels import kind_options
from rankslice.framework.platform import Board

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs", "test"}
FOR_USERS = sorted(EXTRAS.keys() - FOR_DEVELOPERS)
CASES = [
    *(pytest.param(python, FOR_USERS, id=python) for python in ("3.10", "3.13")),
    *(
        pytest.param(python, sorted(EXTRAS), marks=pytest.mark.slow, id=f"{python}-all")
        for python in ("3.10", "3.11", "3.12", "3.13")
    ),
]


def would_install(folder: Path, python: str, requirements: Sequence[str]) -> str:
    """Return why pip finds no wheels; empty: it finds them all. Nothing but metadata travels."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run"]
    kind = kind_options(Board("board1", host="", arch="aarch64", python=python))
    wanted = ["--quiet", "--ignore-installed", "--target", str(folder), "--only-binary=:all:"]
    ended = subprocess.run(
        [*pip, *wanted, *kind, *requirements],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stderr if ended.returncode else ""


def needed(python: str, extras: Sequence[str]) -> list[str]:
    """Return what the project and extras need there: pip itself looks only at this machine."""
    there = {"platform_machine": "aarch64", "python_version": python}
    requirements = [
        *PROJECT["dependencies"],
        *(requirement for extra in extras for requirement in EXTRAS[extra]),
    ]
    wanted = map(Requirement, requirements)
    return [
        f"{requirement.name}{extras_of(requirement)}{requirement.specifier}"
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate(there)
    ]


def extras_of(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


@pytest.mark.ci
@pytest.mark.parametrize(("python", "extras"), CASES)
def test_every_extra_has_wheels_for_aarch64(
    tmp_path: Path, python: str, extras: Sequence[str]
) -> None:
    if missing := would_install(tmp_path, python, ["--no-deps", "cyclopts"]):
        pytest.skip(f"the package index cannot be reached: {missing.strip().splitlines()[-1]}")
    assert "" == would_install(tmp_path, python, needed(python, extras))
