"""A rank is started with the variables that its accelerator needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent("""
    import json, os, sys
    from rankslice.backend.runtime import process_setup
    with open(sys.argv[1], "a") as starts:
        print(os.getpid(), file=starts)
    process_setup.start_again_with(dict(json.loads(sys.argv[2])))
    print(os.environ.get("A", ""), os.environ.get("LD_LIBRARY_PATH", ""), sys.argv[3:])
""")


def started(folder: Path, variables: dict[str, str], **environment: str) -> tuple[str, int]:
    """Return what a rank prints, and how often it was started, in one process."""
    starts = folder / "starts"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, starts, json.dumps(variables), "--frames", "two words"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    processes = starts.read_text().split()
    assert 1 == len(set(processes))
    return done.stdout.strip(), len(processes)


@pytest.fixture(autouse=True)
def _no_library_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def test_a_rank_that_lacks_variables_starts_once_more_with_the_same_arguments(
    tmp_path: Path,
) -> None:
    found = started(tmp_path, {"A": "x y", "LD_LIBRARY_PATH": "/a"})
    assert ("x y /a ['--frames', 'two words']", 2) == found


def test_a_rank_that_has_its_variables_is_not_started_again(tmp_path: Path) -> None:
    assert ("x  ['--frames', 'two words']", 1) == started(tmp_path, {"A": "x"}, A="x")
    (tmp_path / "starts").unlink()
    assert 1 == started(tmp_path, {})[1]


def test_folders_of_libraries_are_put_before_those_that_are_there(tmp_path: Path) -> None:
    found = started(tmp_path, {"LD_LIBRARY_PATH": "/a:/b"}, LD_LIBRARY_PATH="/mpi")
    assert ("/a:/b:/mpi ['--frames', 'two words']", 2) == found
