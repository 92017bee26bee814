"""Jobs that go on for long, with many ranks, or with a source that keeps another rhythm.

Each has a short form for every day; the long ones show what only time can: nothing grows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import psutil
import pytest
from real_jobs import chain, chain_folder, debians_mpirun, let_ranks_sleep, ranks_of

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import Results
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.run import Callbacks, FinishedRun, prepare, run
from rankslice.session.shared_options import Launching

pytestmark = pytest.mark.timeout(900)

GROWTH = 3e6
"""How many bytes a process may grow between the halves of a run: its allocator has moods."""

CHECKSUM_ENGINE = '''
import zlib

class _Checksum(NullEngine):
    """Puts a checksum of all that came in before what goes out."""

    def run(self, inputs, outputs):
        super().run(inputs, outputs)
        outputs[0].reshape(-1).view(np.uint32)[0] = zlib.crc32(inputs[0])


def open_engine(settings):
    engine = _Checksum if "checksum" in settings.options else NullEngine
    return engine(float(settings.options["sleep_ms"]) / 1e3)
'''


def summing_folder(
    place: Path, ranks: int = 3, model: onnx.ModelProto | None = None, sleep_ms: float = 0.0
) -> Path:
    """Return a chain of null engines, the last of which gives checksums of what it gets."""
    folder = chain_folder(place, ranks, model)
    let_ranks_sleep(
        folder, sleep_ms, engine=CHECKSUM_ENGINE, options={ranks - 1: {"checksum": "yes"}}
    )
    return folder


def assert_in_order_and_as_they_entered(folder: Path, results: Results, frames: int) -> None:
    assert frames == len(results)
    np.testing.assert_array_equal(np.arange(frames), results.records["frame"])
    inputs = read_driver(folder / "driver.py").inputs
    source = RandomSource(RunOptions(frames=frames), inputs)
    slot = np.empty(inputs[0].shape, inputs[0].dtype)
    sums = np.empty(frames, np.uint32)
    for frame in range(frames):
        source.read(frame, [slot])
        sums[frame] = zlib.crc32(slot)
    found = np.ascontiguousarray(results.values(0).reshape(frames, -1)[:, :1]).view(np.uint32)
    np.testing.assert_array_equal(sums, found[:, 0])


@dataclass
class Samples:
    """What each rank held, again and again."""

    memory: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Bytes."""
    files: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def assert_flat(self) -> None:
        """Compare the halves of the run; its first quarter is for warming up."""
        assert self.memory
        for rank, values in self.memory.items():
            first, second = halves(values)
            assert second - first < GROWTH, f"rank {rank}: {first} then {second} bytes"
        for rank, values in self.files.items():
            first, second = halves(values)
            assert second <= first, f"rank {rank}: {first} then {second} open files"


def halves(values: list[int]) -> tuple[float, float]:
    warm = values[len(values) // 4 :]
    middle = len(warm) // 2
    assert middle, "too few samples: the run was too short"
    return median(warm[:middle]), median(warm[middle:])


@contextmanager
def beside(work: Callable[[], None], let_end: threading.Event) -> Iterator[None]:
    """Do some work in a thread of its own; set the event that lets it end, and wait for that."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        let_end.set()
        thread.join()


@contextmanager
def sampling(folder: Path, every_s: float) -> Iterator[Samples]:
    """Look at the ranks of a build folder while they run."""
    samples = Samples()
    ended = threading.Event()

    def look() -> None:
        ranks: dict[int, psutil.Process] = {}
        while not ended.wait(every_s):
            ranks = ranks or ranks_of(folder)
            for rank, process in ranks.items():
                try:
                    memory, files = process.memory_info().rss, process.num_fds()
                except psutil.Error:
                    continue
                samples.memory[rank].append(memory)
                samples.files[rank].append(files)

    with beside(look, ended):
        yield samples


BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    pass
"""


@contextmanager
def starving(folder: Path, rank: int, seconds: float) -> Iterator[Callable[[int], None]]:
    """Keep a rank from its core for a while, once the function that is yielded is told of frames.

    Processes of several other sessions take the core, which the kernel divides between sessions
    first, or, as it may be set up, between processes.
    """
    has_begun = threading.Event()

    def starve() -> None:
        has_begun.wait()
        process = ranks_of(folder)[rank]
        for thread in process.threads():
            os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))
        session = Path(f"/proc/{process.pid}/autogroup")
        if session.exists():
            session.write_text("19")
        (core,) = process.cpu_affinity() or ()
        command = [sys.executable, "-c", BUSY, str(core)]
        others = [subprocess.Popen(command, start_new_session=True) for _ in range(20)]
        time.sleep(seconds)
        for other in others:
            other.kill()
            other.wait()

    def note(frames: int) -> None:
        if frames:
            has_begun.set()

    with beside(starve, has_begun):
        yield note


def completed(folder: Path, **options: object) -> FinishedRun:
    return run(prepare(folder, RunOptions(**options)))  # type: ignore[arg-type]


@pytest.mark.ci
@pytest.mark.parametrize("frames", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_small_frames_come_out_as_they_entered_and_nothing_grows(
    tmp_path: Path, frames: int
) -> None:
    folder = summing_folder(tmp_path)
    is_long = frames > 10_000
    with sampling(folder, 0.5 if is_long else 0.05) as samples:
        finished = completed(folder, frames=frames)
    assert_in_order_and_as_they_entered(folder, finished.results, frames)
    if is_long:
        samples.assert_flat()


@pytest.mark.ci
@pytest.mark.parametrize("frames", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_frames_of_2_mb_come_out_as_they_entered_and_nothing_grows(
    tmp_path: Path, frames: int
) -> None:
    folder = summing_folder(tmp_path, model=chain(3, 500_000, result_width=4))
    is_long = frames > 1_000
    with sampling(folder, 0.5 if is_long else 0.05) as samples:
        finished = completed(folder, frames=frames)
    assert_in_order_and_as_they_entered(folder, finished.results, frames)
    if is_long:
        samples.assert_flat()


@pytest.mark.ci
@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_two_dozen_ranks_that_crowd_the_machine_raise_no_false_alarm(
    tmp_path: Path, seconds: int
) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 24), 0)
    frames = 500 * seconds
    finished = completed(folder, frames=frames, fps=500, overflow="drop")
    assert frames == len(finished.results) + len(finished.summary.dropped)
    np.testing.assert_array_equal(
        np.arange(len(finished.results)), finished.results.records["frame"]
    )


@pytest.mark.ci
def test_a_rank_that_others_keep_from_its_core_raises_no_false_alarm(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 10)
    with starving(folder, rank=1, seconds=10) as note:
        finished = run(prepare(folder, RunOptions(frames=500)), Callbacks(note))
    assert 500 == len(finished.results)
    assert finished.summary.latency_ms["max"] > 5_000


@pytest.mark.ci
@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_a_source_that_is_too_fast_is_left_out_of_and_fills_no_memory(
    tmp_path: Path, seconds: int
) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 10)
    frames = 1_000 * seconds
    with sampling(folder, 0.1) as samples:
        finished = completed(folder, frames=frames, fps=1_000, overflow="drop", queue=4)
    samples.assert_flat()
    assert frames == len(finished.results) + len(finished.summary.dropped)
    assert len(finished.results) < 200 * seconds
    # A frame waits for those in the queue, and for those inside the pipeline.
    assert finished.summary.latency_ms["max"] < 5_000


@pytest.mark.ci
def test_a_source_that_is_too_fast_fails_the_job_if_no_frame_may_be_lost(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 10)
    with pytest.raises(RankSliceError, match=r"frame \d+ arrived while 4 frames were waiting"):
        completed(folder, frames=100_000, fps=1_000, queue=4)


@pytest.mark.ci
def test_a_source_that_is_silent_for_ten_seconds_is_no_hang(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 1)
    begin = time.monotonic()
    finished = completed(folder, frames=2, fps=0.1, frame_timeout_s=2.0)
    assert time.monotonic() - begin > 10
    assert 2 == len(finished.results)


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(1, marks=pytest.mark.ci),
        3,
        *(pytest.param(w, marks=pytest.mark.slow) for w in (2, 4, 5, 6, 7, 8)),
    ],
)
def test_any_window_lets_all_frames_through(tmp_path: Path, window: int) -> None:
    folder = summing_folder(tmp_path, sleep_ms=1)
    finished = completed(folder, frames=200, window=window)
    assert window == finished.summary.window
    assert_in_order_and_as_they_entered(folder, finished.results, 200)


@pytest.mark.ci
def test_debians_open_mpi_runs_the_same_job(tmp_path: Path) -> None:
    mpirun = debians_mpirun()
    folder = summing_folder(tmp_path, sleep_ms=1)
    finished = run(prepare(folder, RunOptions(frames=200), Launching(mpirun)))
    assert_in_order_and_as_they_entered(folder, finished.results, 200)
