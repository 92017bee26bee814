"""Recorded tensors are read strictly."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from recorded import record

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.recording import RecordedFrames, head_of, kept_tensors
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.recorded_tensors import read_rank_tensors

FRAMES = RecordedFrames(0, 3)
RANK = 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, bytes]:
    """A job, and the file of its rank 1."""
    folder = tmp_path_factory.mktemp("tensors")
    out = build_folder(folder, figure_2(), FIGURE_2_RANKS)
    record(out, folder / "ran", RunOptions(frames=4, record_frames=3))
    return read_driver(out / "driver.py"), (folder / "ran" / "tensors-1").read_bytes()


def record_bytes(job: Job) -> int:
    return kept_tensors(job, RANK)[0].max_bytes


DAMAGED: dict[str, Callable[[Job, bytes], bytes]] = {
    "is not a file of recorded tensors": lambda job, raw: raw[1:],
    "cut short": lambda job, raw: raw[: len(raw) - record_bytes(job) + 10],
    "has 256 bytes": lambda job, raw: raw[:-1],
    "lacks 'fc' of frame 2": lambda job, raw: raw[: -record_bytes(job)],
    "has 'fc' of frame 2 twice": lambda job, raw: raw + raw[-record_bytes(job) :],
    "names tensor": lambda job, raw: raw + b"\xff" * record_bytes(job),
    "which no run records": lambda job, raw: raw + b"\x09" + raw[1 - record_bytes(job) :],
}


@pytest.mark.parametrize("told", DAMAGED)
def test_a_damaged_file_is_refused(told: str, found: tuple[Job, bytes], tmp_path: Path) -> None:
    job, raw = found
    (tmp_path / "tensors-1").write_bytes(DAMAGED[told](job, raw))
    with pytest.raises(RankSliceError, match=told):
        read_rank_tensors(tmp_path, job, RANK, FRAMES, 4)


def test_a_file_of_another_plan_rank_or_request_is_refused(
    found: tuple[Job, bytes], tmp_path: Path
) -> None:
    job, raw = found
    (tmp_path / "tensors-1").write_bytes(raw)
    (tmp_path / "tensors-0").write_bytes(raw)
    assert read_rank_tensors(tmp_path, job, RANK, FRAMES, 4).has(2, "fc")
    for other in (
        (replace(job, window=job.window + 1), RANK, FRAMES),
        (job, 0, FRAMES),
        (job, RANK, RecordedFrames(0, 4)),
    ):
        with pytest.raises(RankSliceError, match="is not a file of recorded tensors"):
            read_rank_tensors(tmp_path, *other, 4)
    with pytest.raises(RankSliceError, match="cannot be read: No such file"):
        read_rank_tensors(tmp_path, job, 2, FRAMES, 4)


def test_whatever_a_file_holds_no_other_error_is_raised(
    found: tuple[Job, bytes], tmp_path: Path
) -> None:
    job, raw = found
    draw = random.Random(6)
    begin = len(head_of(job, RANK, FRAMES))
    for _ in range(300):
        changed = bytearray(raw)
        for _ in range(draw.choice((1, 3, 20))):
            changed[draw.randrange(begin, len(raw))] = draw.randrange(256)
        (tmp_path / "tensors-1").write_bytes(changed[: draw.choice((len(raw), begin + 30))])
        try:
            tensors = read_rank_tensors(tmp_path, job, RANK, FRAMES, 4)
        except RankSliceError:
            continue
        assert [0, 1, 2] == tensors.frames_of("fc")
