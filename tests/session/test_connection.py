"""What a job tells its launcher while it runs, and the word that ends a stream."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import run_in_process
from jobs import build_folder, use_null_engine
from numpy.typing import NDArray
from real_jobs import chain

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.keeper import ROLE_SINK, VARIABLE, connect, keeper_from
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.connection import Connection, OnResult

HERE = ("127.0.0.1", "127.0.0.1")


def connected(folder: Path, on_result: OnResult | None = None) -> Connection:
    return Connection(read_driver(folder / "driver.py").outputs, HERE, on_result)


def run(
    folder: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> list[dict[str, Any]]:
    for name, value in connection.variables.items():
        monkeypatch.setenv(name, value)
    return run_in_process(folder, RunOptions(results=folder / "results.bin", **options))


@pytest.mark.parametrize("rhythm", [{}, {"fps": 500.0, "overflow": "drop"}], ids=str)
def test_at_the_word_of_the_launcher_a_stream_ends_and_all_that_entered_comes_out(
    built: Path, monkeypatch: pytest.MonkeyPatch, rhythm: dict[str, Any]
) -> None:
    taken: list[NDArray[Any]] = []

    def take(frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        assert len(taken) == frame
        taken.extend(outputs)
        if frame == 20:
            connection.drain()

    with connected(built, take) as connection:
        endless = {"unlimited": True, "drain": True, "stream": True, **rhythm}
        records = run(built, connection, monkeypatch, **endless)
        connection.wait_for_results(has_failed=False)
    assert len(taken) == records[0].source.frames > 20
    np.testing.assert_array_equal(read_results(built / "results.bin").values(0), taken)


def test_a_word_before_the_start_ends_the_stream_before_its_first_frame(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(built) as connection:
        connection.drain()
        run(built, connection, monkeypatch, unlimited=True, drain=True, fps=1e-3)
    assert len(read_results(built / "results.bin")) <= 1


@pytest.mark.ci
def test_whoever_cannot_take_results_ends_the_job(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        raise RankSliceError("full")

    with connected(built, take) as connection:
        with pytest.raises(JobError, match=r"the keeper of the frames: "):
            run(built, connection, monkeypatch, unlimited=True, stream=True)
        with pytest.raises(RankSliceError, match=r"^full$"):
            connection.wait_for_results(has_failed=True)


def test_a_job_that_ends_without_its_last_result_is_an_error(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(built, lambda frame, outputs: None) as connection:
        monkeypatch.setenv(VARIABLE, connection.variables[VARIABLE])
        connect(ROLE_SINK).close()
        with pytest.raises(RankSliceError, match="the job ended before its last result arrived"):
            connection.wait_for_results(has_failed=False)


def test_who_does_not_know_the_secret_takes_no_place_of_the_job(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    with connected(built, lambda frame, outputs: taken.append(frame)) as connection:
        for _ in range(100):  # more than may be about to prove who they are
            with socket.create_connection(keeper_from(connection.variables).sink) as stranger:
                stranger.sendall(bytes(200))
        time.sleep(0.05)
        run(built, connection, monkeypatch, frames=5, stream=True)
        connection.wait_for_results(has_failed=False)
    assert list(range(5)) == taken


@pytest.mark.ci
def test_who_takes_results_slowly_holds_the_job_back_for_longer_than_a_step_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_folder(tmp_path, chain(2, 1 << 18), {"L0": 0, "L1": 1})
    use_null_engine(folder)
    seen: list[int] = []
    taken = 0

    def take(frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        nonlocal taken
        taken += 1
        if frame == 0:
            time.sleep(2)
            seen.append(len(read_results(folder / "results.bin")))
            time.sleep(2)
            seen.append(len(read_results(folder / "results.bin")))

    with connected(folder, take) as connection:
        run(folder, connection, monkeypatch, frames=60, stream=True, frame_timeout_s=2)
        connection.wait_for_results(has_failed=False)
    assert 60 == taken
    assert seen[0] == seen[1] < 60
