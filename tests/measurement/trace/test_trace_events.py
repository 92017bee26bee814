"""What ranks note about themselves, and how it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from real_jobs import chain_folder, let_ranks_sleep

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    EVENT,
    FRAME,
    HEAD_BYTES,
    READ,
    RECEIVE,
    SEND,
    WRITE,
    EventRing,
    open_ring,
)
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.trace.trace_events import MAX_EVENTS, events_needed, read_events
from rankslice.session.run import prepare, run

PLAN = "0" * 64


def ring_in(folder: Path, capacity: int = 8) -> EventRing:
    ring = open_ring(folder, 0, capacity)
    ring.describe(job_sha256=PLAN, rank=0)
    return ring


@pytest.mark.parametrize("count", [0, 3, 8, 21])
def test_the_last_events_are_kept_in_order(tmp_path: Path, count: int) -> None:
    ring = ring_in(tmp_path)
    for frame in range(count):
        ring.add(COMPUTE, 1 + frame, 1.5 + frame, frame, 2, thread=1, route=1)
    ring.close()
    rank_events = read_events(tmp_path / "events-0", 0, PLAN)
    kept = range(max(0, count - 8), count)
    assert [
        (1_000_000_000 * (1 + n), 1_000_000_000 * (1 + n) + 500_000_000, n, COMPUTE, 1, 1, 2)
        for n in kept
    ] == rank_events.events.tolist()
    assert count - len(kept) == rank_events.lost


def test_a_rank_that_was_killed_leaves_what_it_did(tmp_path: Path) -> None:
    ring = ring_in(tmp_path)
    ring.add(WRITE, 1.0, 2.0, 5)
    rank_events = read_events(tmp_path / "events-0", 0, PLAN)
    assert ([5], None) == (rank_events.events["frame"].tolist(), rank_events.lost)


def test_half_an_event_is_none(tmp_path: Path) -> None:
    ring = ring_in(tmp_path)
    ring.add(WRITE, 1.0, 2.0, 5)
    content = bytearray((tmp_path / "events-0").read_bytes())
    EVENT.pack_into(content, HEAD_BYTES + EVENT.size, 9, 0, 6, COMPUTE, 0, 0, 0)
    EVENT.pack_into(content, HEAD_BYTES + 2 * EVENT.size, 9, 8, 6, COMPUTE, 0, 0, 0)
    EVENT.pack_into(content, HEAD_BYTES + 3 * EVENT.size, 8, 9, 6, 200, 0, 0, 0)
    EVENT.pack_into(content, HEAD_BYTES + 4 * EVENT.size, 8, 9, 6, COMPUTE, 0, 77, 0)
    EVENT.pack_into(content, HEAD_BYTES + 5 * EVENT.size, -8, 9, 6, COMPUTE, 0, 0, 0)
    EVENT.pack_into(content, HEAD_BYTES + 6 * EVENT.size, 8, 1 << 62, 6, COMPUTE, 0, 0, 0)
    EVENT.pack_into(content, HEAD_BYTES + 7 * EVENT.size, 8, 9, 1 << 50, COMPUTE, 0, 0, 0)
    (tmp_path / "events-0").write_bytes(content)
    assert [5] == read_events(tmp_path / "events-0", 0, PLAN).events["frame"].tolist()


def test_a_head_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has \d+ bytes"):
        EventRing().describe(key="k" * HEAD_BYTES)


WRONG = {
    "is not a file of events": {"format": "other"},
    "has version 9, not 2": {"version": 9},
    "is of another job": {"job_sha256": "1" * 64},
    "is of rank 3, not 0": {"rank": 3},
    "has room for -1 events": {"capacity": -1},
    f"has room for {MAX_EVENTS + 1} events": {"capacity": MAX_EVENTS + 1},
    f"has {HEAD_BYTES + 8 * EVENT.size} bytes, and room for 7 events": {"capacity": 7},
}


@pytest.mark.parametrize("told", WRONG)
def test_a_file_of_something_else_is_refused(tmp_path: Path, told: str) -> None:
    ring = ring_in(tmp_path)
    ring.describe(**WRONG[told])
    with pytest.raises(RankSliceError, match="events-0: " + told):
        read_events(tmp_path / "events-0", 0, PLAN)


def test_what_is_no_file_is_refused_without_being_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events-0")
    (tmp_path / "events-1").symlink_to("/dev/zero")
    for rank in (0, 1):
        with pytest.raises(RankSliceError, match="is not a regular file"):
            read_events(tmp_path / f"events-{rank}", rank, PLAN)


@given(content=st.binary(max_size=2 * HEAD_BYTES))
def test_no_file_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("events") / "events-0"
    path.write_bytes(content)
    with pytest.raises(RankSliceError, match="events-0"):
        read_events(path, 0, PLAN)


@pytest.mark.parametrize("direct", [True, False])
def test_a_job_tells_what_each_rank_does_with_each_frame(tmp_path: Path, direct: bool) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 2.0)
    plan = prepare(folder, RunOptions()).plan
    options = RunOptions(
        frames=40, events=Path("events"), events_kept=events_needed(plan, 40), direct=direct
    )
    finished = run(prepare(folder, options))
    trace = finished.trace
    assert trace is not None
    frames = list(range(40))
    for rank in trace.ranks:
        assert 0 == rank.lost
        steps = rank.of(COMPUTE)
        assert frames == steps["frame"].tolist()
        assert np.all(steps["end_ns"] - steps["begin_ns"] >= 2_000_000)
    first, middle, last = trace.ranks
    assert frames == first.of(READ)["frame"].tolist() == last.of(WRITE)["frame"].tolist()
    assert frames == sorted(first.of(FRAME)["frame"])
    assert np.mean(trace.latencies_s) == pytest.approx(
        1e-3 * finished.summary.latency_ms["mean"], rel=1e-3
    )
    for kind, rank in ((SEND, first), (RECEIVE, middle), (SEND, middle), (RECEIVE, last)):
        assert ([] if direct else frames) == sorted(rank.of(kind)["frame"])
    # The report says the same about what was computed.
    for rank, told in zip(trace.ranks, finished.summary.ranks, strict=True):
        took_ms = 1e-6 * np.mean(rank.of(COMPUTE)["end_ns"] - rank.of(COMPUTE)["begin_ns"])
        assert took_ms == pytest.approx(told.compute_ms["mean"], abs=1.0)
    assert json.loads((folder / "report.json").read_text())["ranks"]
    assert [] == list(folder.glob("events*"))
