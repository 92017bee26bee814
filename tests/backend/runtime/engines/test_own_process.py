"""Engines in a process of their own: what they compute, and every way to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from waiting import until

from rankslice.backend.runtime.direct.memory import Memory, make_memory, map_memory
from rankslice.backend.runtime.engines import EngineSettings
from rankslice.backend.runtime.engines.own_process import OwnProcessEngine, start_processes
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures import rank_usage
from rankslice.backend.runtime.job import Tensor

X, Y = Tensor("x", "float32", (3,)), Tensor("y", "float32", (3,))


@contextmanager
def null_engine(**options: str) -> Iterator[OwnProcessEngine]:
    """The engine that hands its first bytes on, in a process of its own."""
    engine = OwnProcessEngine("null_engine", EngineSettings(options=options))
    try:
        yield engine
    finally:
        engine.close()


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def test_tensors_pass_to_the_other_process_and_back() -> None:
    with null_engine() as engine:
        engine.load(Path("none"), [X], [Y])
        for value in range(5):
            source, made = np.full(3, value, np.float32), np.zeros(3, np.float32)
            engine.run([source], [made])
            assert [value] * 3 == made.tolist()
    assert [] == children()


def test_tensors_of_every_size_are_sent_if_they_are_in_no_shared_memory() -> None:
    arrays = [np.array(7, np.int64), np.zeros((0, 3), np.float32), np.arange(300_000)]
    made = [np.zeros_like(array) for array in arrays]
    specs = [Tensor(f"t{n}", str(array.dtype), array.shape) for n, array in enumerate(arrays)]
    with null_engine() as engine:
        engine.load(Path("none"), specs, specs)
        for _ in range(2):
            engine.run(arrays, made)
        assert [7, 7] == [made[0], made[2][0]]


def test_tensors_in_shared_memory_are_read_and_written_where_they_are() -> None:
    own, other = make_memory(4096, others_write=True), make_memory(4096)
    # As a rank sees the memory of another one.
    seen = Memory(other.descriptor, map_memory(other.descriptor, 4096))
    x, y = (
        memory.content[at : at + 12].view(np.float32) for memory, at in ((seen, 128), (own, 64))
    )
    with null_engine(sleep_ms="200") as engine:
        engine.share([own, seen])
        engine.load(Path("none"), [X], [Y])
        with ThreadPoolExecutor() as threads:
            running = threads.submit(engine.run, [x], [y])
            time.sleep(0.05)
            other.content[128:140].view(np.float32)[:] = 5
            running.result()
        assert [5, 5, 5] == y.tolist()
        mapped = Path(f"/proc/{children()[0].pid}/maps").read_text().splitlines()
        rights = [line.split()[1] for line in mapped if "rankslice-rings" in line]
        assert ["r--s", "rw-s"] == sorted(rights)
    os.close(own.descriptor)
    os.close(other.descriptor)


def test_a_process_that_was_started_ahead_is_the_one_that_is_used() -> None:
    start_processes(1)
    (ahead,) = children()
    with null_engine() as engine:
        engine.load(Path("none"), [X], [Y])
        assert [ahead] == children()


def test_what_goes_wrong_in_it_crosses_with_its_text() -> None:
    with null_engine(sleep_ms="soon") as engine, pytest.raises(JobError) as error:
        engine.load(Path("none"), [X], [Y])
    assert "null: option sleep_ms is 'soon', expected milliseconds" == str(error.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_its_crash_is_an_error_that_names_the_sub_model_and_the_signal(
    number: signal.Signals,
) -> None:
    with null_engine() as engine:
        engine.load(Path("part.0.tflite"), [X], [Y])
        os.kill(children()[0].pid, number)
        with pytest.raises(JobError) as error:
            engine.run([np.zeros(3, np.float32)], [np.zeros(3, np.float32)])
    expected = (
        f"part.0.tflite: the process of the accelerator was killed or crashed ({number.name})"
    )
    assert str(error.value).startswith(expected)


def test_it_computes_on_the_cores_of_the_thread_that_loads() -> None:
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        start_processes(1)
        os.sched_setaffinity(0, cores)
        with null_engine() as engine:
            engine.load(Path("none"), [X], [Y])
            assert sorted(cores) == children()[0].cpu_affinity()
    finally:
        os.sched_setaffinity(0, cores)


def test_its_memory_and_time_count_as_the_ranks() -> None:
    before = rank_usage.peak_memory_mb()
    with null_engine() as engine:
        engine.load(Path("none"), [X], [Y])
        assert rank_usage.peak_memory_mb() > before + 5
        assert rank_usage.cpu_s() > 0.01
    assert rank_usage.peak_memory_mb() < before + 5


def test_it_ends_with_its_rank_even_if_that_is_killed() -> None:
    program = textwrap.dedent("""
        import time
        from pathlib import Path
        from rankslice.backend.runtime.engines import EngineSettings
        from rankslice.backend.runtime.engines.own_process import OwnProcessEngine
        settings = EngineSettings(options={"sleep_ms": "60000"})
        engine = OwnProcessEngine("null_engine", settings)
        engine.load(Path("none"), [], [])
        print("loaded", flush=True)
        engine.run([], [])
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert b"loaded\n" == rank.stdout.readline()
        (other,) = psutil.Process(rank.pid).children()
        rank.kill()
    until(lambda: not other.is_running() or other.status() == psutil.STATUS_ZOMBIE)
