"""A generated driver that a user edits, started by a real mpirun: what runs, or what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from real_jobs import digits_folder, wheels_mpirun

from rankslice.framework.reading.read_driver import read_driver

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("edited"))


def run_edited(folder: Path, *edits: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a copy of the driver in which each text is replaced at its first place."""
    text = (folder / "driver.py").read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after, 1)
    (folder / "edited.py").write_text(text)
    line = f"{wheels_mpirun()} --map-by slot:oversubscribe --bind-to none -n 2".split()
    line[1:1] = ["--allow-run-as-root"]
    line += [sys.executable, "edited.py", "--frames=3", "--report=report.json"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def report_of(folder: Path) -> list[dict[str, Any]]:
    """Return what the ranks of the last run reported."""
    ranks: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["ranks"]
    return ranks


def test_other_cores_and_a_smaller_window_are_what_runs(folder: Path) -> None:
    own, other = (rank.cores[0] for rank in read_driver(folder / "driver.py").ranks)
    moved = (f"cores=({own},)", f"cores=({other},)")
    ended = run_edited(folder, moved, ("window=4", "window=1"))
    assert 0 == ended.returncode, ended.stderr
    first, second = report_of(folder)
    assert ([other], [other]) == (first["cores"], second["cores"])
    assert 1 == first["source"]["window"]
    assert "window 1" in ended.stdout


def test_an_option_reaches_the_engine(folder: Path) -> None:
    engine = 'engine="onnxruntime",'
    ended = run_edited(folder, (engine, f'{engine} options={{"provider": "Nowhere"}},'))
    assert 0 != ended.returncode
    assert "Nowhere" in ended.stderr


def test_a_channel_less_is_refused_before_mpi_starts(folder: Path) -> None:
    ended = run_edited(folder, ("sends=(", "sends=() and ("))
    assert 0 != ended.returncode
    told = [line for line in ended.stderr.splitlines() if line.startswith("rankslice: ")]
    assert 1 == len(told)
    assert "edited.py: ranks[1].receives[0]: rank 1 receives" in ended.stderr
    assert "rank 0 sends it to nobody" in ended.stderr
    assert "MPI_ABORT" not in ended.stderr
