"""A rank is started with the variables that its accelerator needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned

from rankslice.framework.plan import plan_to_json

PROGRAM = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from rankslice.backend.runtime import driver, environment
    with open(sys.argv[1], "a") as starts:
        print(os.getpid(), file=starts)
    environment.start_again_with(driver._environment(Path(sys.argv[1]).parent))
    print(os.environ.get("A", ""), os.environ.get("LD_LIBRARY_PATH", ""), sys.argv[2:])
""")


def started(folder: Path, variables: dict[str, str], **environment: str) -> tuple[str, int]:
    """Return what rank 1 prints, and how often it was started, in one process."""
    record = json.loads(plan_to_json(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)))
    record["ranks"][1]["environment"] = variables
    (folder / "plan.json").write_text(json.dumps(record))
    starts = folder / "starts"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, starts, "--frames", "two words"],
        env={**os.environ, "OMPI_COMM_WORLD_RANK": "1", **environment},
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
