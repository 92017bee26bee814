"""What the last second of a rank shows, by its ring and its processes."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    FRAME,
    READ,
    SEND,
    WAIT,
    EventRing,
    open_ring,
)
from rankslice.backend.runtime.figures.sampling import EventReader, LastSecond, Sampler, split_name

S = 1_000_000_000
BOOT_S = 5000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the rings."""
    folder = tmp_path / "session"
    folder.mkdir()
    return folder


def ring_of(folder: Path, rank: int = 0, capacity: int = 4096, process: int = 100) -> EventRing:
    ring = open_ring(folder, rank, capacity)
    ring.describe(rank=rank, process=process)
    return ring


def compute(ring: EventRing, frame: int, begin_s: float, seconds: float, segment: int = 0) -> None:
    ring.add(COMPUTE, BOOT_S + begin_s, BOOT_S + begin_s + seconds, frame, segment)


def test_shares_and_rate_are_those_since_the_look_before(folder: Path) -> None:
    ring = ring_of(folder)
    with closing(EventReader(folder, 0)) as reader:
        last = LastSecond(reader)
        assert {} == last.values(int(BOOT_S * S))
        for second in range(3):
            busy_s = 0.06 + 0.01 * second
            for tenth in range(10):
                begin_s = second + tenth / 10
                compute(ring, 10 * second + tenth, begin_s, busy_s / 2)
                compute(ring, 10 * second + tenth, begin_s + busy_s / 2, busy_s / 2, segment=1)
                ring.add(WAIT, BOOT_S + begin_s + busy_s, BOOT_S + begin_s + 0.1, -1)
                ring.add(SEND, BOOT_S + begin_s, BOOT_S + begin_s + 0.09, tenth, 0)
            values = last.values(int((BOOT_S + second + 1) * S))
            expected = {"frames_per_s": 10, "compute_share": 10 * busy_s}
            assert {**expected, "wait_share": 1 - 10 * busy_s} == pytest.approx(values, rel=1e-6)


def test_a_step_of_several_seconds_counts_once_it_has_ended(folder: Path) -> None:
    ring = ring_of(folder)
    with closing(EventReader(folder, 0)) as reader:
        last = LastSecond(reader)
        compute(ring, 0, 0, 0.5)
        last.values(int((BOOT_S + 1) * S))
        for second in (2, 3):
            assert {"frames_per_s": 0.0} == last.values(int((BOOT_S + second) * S))
        compute(ring, 1, 0.5, 3)
        assert 1.0 == last.values(int((BOOT_S + 4) * S))["compute_share"]


def test_the_source_tells_rate_latency_and_queue_of_the_job(folder: Path) -> None:
    ring = ring_of(folder)
    with closing(EventReader(folder, 0)) as reader:
        last = LastSecond(reader)
        ring.add(READ, BOOT_S, BOOT_S + 0.001, 0, thread=1)
        last.values(int(BOOT_S * S) + 1)
        for frame in range(100):  # each waits 30 ms before it enters; 103 have entered
            arrived_s = BOOT_S + frame / 100
            ring.add(READ, arrived_s + 0.03, arrived_s + 0.031, frame, thread=1)
            ring.add(FRAME, arrived_s, arrived_s + 0.04 + frame / 1e4, frame)
        for frame in (100, 101, 102):
            ring.add(READ, BOOT_S + 1.03, BOOT_S + 1.031, frame, thread=1)
        values = last.values(int((BOOT_S + 1) * S) + 1)
    assert {
        "completed": 100,
        "rate_fps": 100,
        "latency_p50_ms": 44.9,
        "latency_p99_ms": 49.8,
        "frames_inside": 3,
        "frames_waiting": 3.0,
    } == pytest.approx({name: values[name] for name in values if name != "frames_per_s"}, rel=1e-2)


@pytest.mark.parametrize("capacity", [100, 1000, 4096])
def test_a_ring_that_goes_round_between_looks_still_tells_shares_and_rate(
    folder: Path, capacity: int
) -> None:
    ring = ring_of(folder, capacity=capacity)
    with closing(EventReader(folder, 0)) as reader:
        last = LastSecond(reader)
        for second in range(4):
            for frame in range(2500):
                begin_s = second + frame / 2500
                compute(ring, frame, begin_s, 0.0001)
                ring.add(WAIT, BOOT_S + begin_s + 0.0001, BOOT_S + begin_s + 0.0004, -1)
            values = last.values(int((BOOT_S + second + 1) * S))
            assert 2500 == pytest.approx(values["frames_per_s"], rel=0.03)
            assert 0.25 == pytest.approx(values["compute_share"], rel=0.03)


def test_a_frame_told_after_later_events_is_not_lost_for_ever(folder: Path) -> None:
    ring = ring_of(folder)
    with closing(EventReader(folder, 0)) as reader:
        compute(ring, 0, 1, 0.1)
        assert 1 == len(reader.take()[0])
        ring.add(FRAME, BOOT_S, BOOT_S + 1.05, 0)
        assert [] == reader.take()[0]
        compute(ring, 1, 2, 0.1)
        assert [1] == [event.frame for event in reader.take()[0]]


def process(
    root: Path, number: int, ticks: int, pages: int, state: str = "S", name: str = "python3"
) -> None:
    folder = root / "proc" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    fields = [state, *["0"] * 10, str(ticks), str(2 * ticks), *["0"] * 8, str(pages), *["0"] * 20]
    (folder / "stat").write_text(f"{number} ({name}) {' '.join(fields)}")


def test_processor_time_and_memory_are_those_of_a_rank_and_its_helpers(
    folder: Path, tmp_path: Path
) -> None:
    ring = ring_of(folder, rank=3)
    ring.describe(helpers=[101])
    process(tmp_path, 100, 50, 1000, name="a) S b")
    process(tmp_path, 101, 25, 500)
    ticks_s, page_mb = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE") / 1e6
    with closing(Sampler(folder, tmp_path, nvml="none.so")) as sampler:
        values = sampler.sample().values
        assert {"cpu_s.rank3": 225 * ticks_s, "memory_mb.rank3": 1500 * page_mb} == values
        process(tmp_path, 101, 25, 500, state="Z")
        assert 1000 * page_mb == sampler.sample().values["memory_mb.rank3"]
        assert "processor_share.rank3" in sampler.sample().values
        ring.close()
        assert {} == sampler.sample().values


@pytest.mark.parametrize("content", [b"", b"{", b'{"process": "1"}', b"[" * 4096])
def test_a_ring_that_is_being_made_is_no_rank_yet(
    content: bytes, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "session" / "events-0").write_bytes(content)
    (tmp_path / "session" / "events-x").write_bytes(content)
    (tmp_path / "session" / "events-1").write_bytes(content.ljust(8192, b"\0"))
    with closing(Sampler(folder, tmp_path, nvml="none.so")) as sampler:
        assert {} == sampler.sample().values


def test_names_tell_the_rank_or_the_part() -> None:
    assert ("cpu_s", 12) == split_name("cpu_s.rank12")
    assert ("temperature_c", "ranked") == split_name("temperature_c.ranked")
    assert ("power_w", "") == split_name("power_w")
