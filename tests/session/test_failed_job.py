"""What each rank of a failed job did last stays in the build folder, whole."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from real_jobs import FAILING_ENGINE, chain_folder, let_ranks_sleep

import rankslice
from rankslice.backend.runtime.figures.events import COMPUTE, READ, WRITE, open_ring
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.trace import CLOCKS, FAILURE, LAST_FAILURE
from rankslice.measurement.trace.trace_events import failure_of, read_failure
from rankslice.session.build_folder import PLAN
from rankslice.session.prepare import PreparedRun
from rankslice.session.run import prepare, run
from rankslice.session.start import FailedJobError, keep_failure

ERROR = RankSliceError(Mistake("rank 1", "has had enough"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """A run of two ranks that never starts."""
    folder = chain_folder(tmp_path_factory.mktemp("job"), 2)
    return prepare(folder, RunOptions(frames=1))


def note(place: Path, prepared: PreparedRun, rank: int, *frames: int) -> None:
    """Write what a rank did."""
    ring = open_ring(place, rank, 8)
    ring.describe(job_sha256=prepared.plan.job.sha256, rank=rank)
    for frame in frames:
        ring.add(COMPUTE, 1.0 + frame, 2.0 + frame, frame)


def test_what_ranks_did_last_is_kept_without_those_that_are_missing(
    prepared: PreparedRun, tmp_path: Path
) -> None:
    note(tmp_path, prepared, 0, 5, 6)
    (tmp_path / "events-1").write_bytes(b"a lie")
    (tmp_path / CLOCKS).write_text(json.dumps({"local": [[1, 2, 3]]}))
    error = keep_failure(prepared, tmp_path, ERROR)
    assert isinstance(error, FailedJobError)
    assert ERROR.mistakes == error.mistakes
    assert f"rankslice trace {shlex.quote(str(prepared.folder))} --failure" in error.hint
    failure = failure_of(prepared.folder)
    assert ("rank 1: has had enough",) == failure.message
    assert (1,) == failure.missing
    assert [[1, 2, 3]] == [*map(list, failure.clocks["local"])]
    there, missing = read_failure(prepared.folder, prepared.plan).ranks
    assert [5, 6] == there.events["frame"].tolist()
    assert 0 == len(missing.events)


def test_the_next_failure_takes_its_place(prepared: PreparedRun, tmp_path: Path) -> None:
    for frame in (1, 2):
        note(tmp_path, prepared, 0, frame)
        note(tmp_path, prepared, 1, frame)
        keep_failure(prepared, tmp_path, ERROR)
    trace = read_failure(prepared.folder, prepared.plan)
    assert [[2], [2]] == [rank.events["frame"].tolist() for rank in trace.ranks]
    assert {"events-0", "events-1", FAILURE} == {
        path.name for path in (prepared.folder / LAST_FAILURE).iterdir()
    }


def test_a_job_in_which_no_rank_did_anything_keeps_the_failure_before(
    prepared: PreparedRun, tmp_path: Path
) -> None:
    note(tmp_path, prepared, 0, 3)
    keep_failure(prepared, tmp_path, ERROR)
    note(tmp_path, prepared, 0)
    assert ERROR is keep_failure(prepared, tmp_path, ERROR)
    assert [3] == read_failure(prepared.folder, prepared.plan).ranks[0].events["frame"].tolist()


def test_where_nothing_can_be_written_the_message_promises_nothing(
    prepared: PreparedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(tmp_path, prepared, 0, 3)
    monkeypatch.setattr("rankslice.session.start.LAST_FAILURE", PLAN)  # a file
    assert ERROR is keep_failure(prepared, tmp_path, ERROR)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "this is not a failure, or it is damaged"),
        ("{}", "this is not a failure"),
        ('{"format": "rankslice-trace"}', "this is not a failure"),
        ('{"format": "rankslice-failure", "version": 1}', "a failure of version 1, not 2"),
        (
            '{"format": "rankslice-failure", "version": 2, "clocks": {}, "time": 7}',
            "time: found 7; expected a text",
        ),
    ],
)
def test_a_failure_that_is_none_is_refused(
    prepared: PreparedRun, tmp_path: Path, text: str, expected: str
) -> None:
    note(tmp_path, prepared, 0, 3)
    keep_failure(prepared, tmp_path, ERROR)
    index = prepared.folder / LAST_FAILURE / FAILURE
    index.write_text(text)
    with pytest.raises(RankSliceError) as error:
        failure_of(prepared.folder)
    assert expected.replace(" ", "") in str(error.value).replace(" ", "")


def test_samples_of_clocks_that_are_none_are_refused(prepared: PreparedRun, tmp_path: Path) -> None:
    note(tmp_path, prepared, 0, 3)
    ring = open_ring(tmp_path, 1, 8)
    ring.describe(job_sha256=prepared.plan.job.sha256, rank=1, clock=[[1, 2]])
    ring.add(COMPUTE, 1.0, 2.0, 0)
    keep_failure(prepared, tmp_path, ERROR)
    assert (1,) == failure_of(prepared.folder).missing


@pytest.mark.ci
def test_a_failed_job_tells_how_to_see_what_its_ranks_did_last(tmp_path: Path) -> None:
    out = let_ranks_sleep(
        chain_folder(tmp_path / "job", 3), 5, engine=FAILING_ENGINE, options={1: {"fails": "20"}}
    )
    prepared = prepare(out, RunOptions(frames=1000))
    with pytest.raises(RankSliceError, match="frame 20: RuntimeError") as error:
        run(prepared)
    hint = f"what each rank did last: rankslice trace {out} --failure"
    assert hint in str(error.value).splitlines()
    first, second, last = read_failure(out, prepared.plan).ranks
    assert 19 == second.of(COMPUTE)["frame"].max()
    assert first.of(READ)["frame"].max() > 19
    written = last.of(WRITE)["frame"]
    assert list(range(len(written))) == list(written)
    assert 10 < written.max() < 20
    assert (0.0, 0.0, 0.0) == read_failure(out, prepared.plan).error_ns
    assert [] == list(out.glob(".*"))


@pytest.mark.ci
def test_a_pipeline_that_its_program_ends_has_not_failed(tmp_path: Path) -> None:
    out = let_ranks_sleep(chain_folder(tmp_path / "job", 2), 5)
    pipeline = rankslice.open(out)
    frames = (np.zeros((1, 16), np.float32) for _ in range(1000))
    results = pipeline.map(frames)
    next(results)
    pipeline.abort()
    assert not (out / LAST_FAILURE).exists()
