"""Several runs of one build folder at once, and what runs leave in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND, rankslice, succeed
from jobs import FIGURE_2_RANKS, build_folder, figure_2, unsliced_outputs
from namespaces import read_only, run_with_mounts
from real_jobs import debians_mpirun, wheels_mpirun

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.session.build_folder import OWN_ENTRIES
from rankslice.session.run_folder import living_runs, one_at_a_time, run_folder

LASTING = ("--fps", "30", "--verify", "exact", "--json", "-")


def frames_of(path: Path, seed: int, count: int) -> Path:
    values = np.random.default_rng(seed).standard_normal((count, 1, 4, 8, 8))
    np.savez(path, x=values.astype(np.float32))
    return path


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "run", *map(str, (folder, *arguments))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def foreign(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - OWN_ENTRIES


@pytest.mark.ci
@pytest.mark.parametrize(("open_mpi", "jobs"), [(wheels_mpirun, 3), (debians_mpirun, 2)])
def test_jobs_at_once_on_one_folder_get_the_results_of_their_own_inputs(
    built: Path, tmp_path: Path, open_mpi: Callable[[], Path], jobs: int
) -> None:
    mpirun = open_mpi()
    inputs = [frames_of(tmp_path / f"{n}.npz", n, 40 + n) for n in range(jobs)]
    running = [start(built, "--input", file, "--mpirun", mpirun, *LASTING) for file in inputs]
    for number, job in enumerate(running):
        out, errors = job.communicate(timeout=300)
        assert (0, "") == (job.returncode, errors.lstrip("\0"))
        record = json.loads(out)
        assert (40 + number, True) == (record["completed"], record["verify"]["bit_equal"])
    kept = read_results(built / "results.bin").values(0)
    source = json.loads((built / "report.json").read_text())["ranks"][0]["source"]
    assert len(kept) == source["frames"]
    (expected,) = unsliced_outputs(built, [str(inputs[len(kept) - 40])], len(kept))
    np.testing.assert_array_equal(expected, kept)
    assert set() == foreign(built)


def test_a_run_that_fails_early_leaves_results_and_report_of_the_one_before(
    built: Path, tmp_path: Path
) -> None:
    ResultsWriter(built / "results.bin", "f", []).close()
    (built / "report.json").write_text("{}")
    before = [(built / name).read_bytes() for name in ("results.bin", "report.json")]
    ended = rankslice("run", built, "--frames", "3", "--mpirun", "/usr/bin/false")
    assert 1 == ended.code
    assert before == [(built / name).read_bytes() for name in ("results.bin", "report.json")]


@pytest.mark.ci
def test_a_run_that_is_told_to_end_keeps_the_results_of_finished_frames(built: Path) -> None:
    (built / "results.bin").unlink(missing_ok=True)
    job = start(built, "--frames", "100000", "--fps", "30")
    await_frames(built, 5)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=300)
    assert 128 + signal.SIGTERM == job.returncode
    assert len(read_results(built / "results.bin")) >= 5
    left = {path.name for path in built.iterdir()}
    assert not left & {"report.json", "run.json"}, "it would be that of another run"
    assert set() == foreign(built)


def await_frames(folder: Path, count: int) -> Path:
    """Return the folder of the one run in ``folder`` once frames have come out."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for results in folder.glob(".rankslice-run-*/results.bin"):
            try:
                if len(read_results(results)) >= count:
                    return results.parent
            except JobError:
                pass
        time.sleep(0.05)
    raise AssertionError("no frame has come out")


@pytest.mark.ci
def test_what_a_killed_launcher_left_can_be_read_until_the_next_run_removes_it(
    built: Path,
) -> None:
    job = start(built, "--frames", "100000", "--fps", "30")
    left = await_frames(built, 5)
    assert [left] == living_runs(built)
    job.kill()
    job.communicate(timeout=300)
    assert len(read_results(left / "results.bin")) >= 5
    assert 0o700 == left.stat().st_mode & 0o777
    succeed("run", built, "--frames", "3")
    assert set() == foreign(built)


def test_folders_of_living_runs_and_of_other_people_stay(tmp_path: Path) -> None:
    foreign_one = tmp_path / ".rankslice-run-of-another"
    foreign_one.mkdir()
    if os.geteuid() == 0:
        os.chown(foreign_one, 12345, 12345)
    (tmp_path / ".rankslice-run-link").symlink_to(tmp_path)
    with run_folder(tmp_path) as one, run_folder(tmp_path) as other:
        assert one != other
        assert {one, other} == set(living_runs(tmp_path))
    assert not one.exists()
    left = {path.name for path in tmp_path.iterdir()}
    expected = {".rankslice-run-link"} | ({foreign_one.name} if os.geteuid() == 0 else set())
    assert expected == left


def test_results_and_report_in_a_folder_are_of_the_same_run(tmp_path: Path) -> None:
    def put(run: str) -> None:
        with one_at_a_time(tmp_path):
            for name in ("results", "report"):
                (tmp_path / name).write_text(run)
                time.sleep(0.002)

    with ThreadPoolExecutor(8) as runs:
        list(runs.map(put, map(str, range(40))))
    assert (tmp_path / "results").read_text() == (tmp_path / "report").read_text()
    with one_at_a_time(tmp_path / "absent"):
        assert not (tmp_path / "absent").exists()


def test_a_build_replaces_no_folder_in_which_a_run_goes_on(tmp_path: Path) -> None:
    out = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    again = ("build", tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json")
    with run_folder(out):
        ended = rankslice(*again, "--share-cores", "--out", out, "--force")
        assert 1 == ended.code
        assert "a run is in progress in it" in ended.err
    succeed(*again, "--share-cores", "--out", out, "--force")


def test_two_jobs_typed_by_hand_do_not_write_one_results_file(tmp_path: Path) -> None:
    outputs = [Tensor("y", "float32", ())]
    first = ResultsWriter(tmp_path / "r", "f", outputs)
    first.write(0, [np.ones((), np.float32)])
    with pytest.raises(JobError, match="r: another job is writing it; choose another --results"):
        ResultsWriter(tmp_path / "r", "f", outputs)
    first.close()
    assert [1] == read_results(tmp_path / "r").values(0).tolist()
    ResultsWriter(tmp_path / "r", "f", outputs).close()
    assert 0 == len(read_results(tmp_path / "r"))


@pytest.mark.ci
def test_a_read_only_build_folder_runs_with_results_elsewhere(built: Path, tmp_path: Path) -> None:
    (built / "report.json").unlink(missing_ok=True)
    refused = run_with_mounts(read_only(built), "run", built, "--frames", "5")
    assert 1 == refused.code
    assert refused.err.startswith(f"error: {built}/results.bin: cannot be written: Read-only ")
    assert 1 == refused.err.count("\n")
    results = tmp_path / "r.bin"
    ended = run_with_mounts(read_only(built), "run", built, "--frames", "5", "--results", results)
    assert (0, "") == (ended.code, ended.err)
    assert 5 == len(read_results(results))
    assert [results] == list(tmp_path.iterdir())
    assert not (built / "report.json").exists()
