"""Batches are filled with the rows of several requests, and each gets its own results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from served import Doubling, Served, served
from tritonclient.utils import InferenceServerException

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import RankSliceError

BATCH = (Tensor("x", "float32", (4, 3)),)
LONG_S = 30.0


def rows(first: int, count: int) -> NDArray[np.float32]:
    """Return rows that differ from all others."""
    return np.arange(3 * first, 3 * (first + count), dtype=np.float32).reshape(count, 3)


def ask(address: str, values: NDArray[Any], timeout_us: int | None = None) -> NDArray[Any]:
    client = tritonclient.http.InferenceServerClient(address, network_timeout=20)
    tensor = tritonclient.http.InferInput("x", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    try:
        return client.infer("double", [tensor], timeout=timeout_us).as_numpy("twice_x")
    finally:
        client.close()


@contextmanager
def batching(pipeline: Doubling, max_delay_s: float) -> Iterator[tuple[Served, ThreadPoolExecutor]]:
    with (
        served(pipeline, max_delay_s=max_delay_s) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        yield server, pool


def asked_in_turn(
    server: Served, pool: ThreadPoolExecutor, counts: Sequence[int]
) -> list[Future[NDArray[Any]]]:
    """Ask for so many rows each, one request after the other."""
    asked = []
    for number in range(len(counts)):
        asked.append(pool.submit(ask, server.http, rows(sum(counts[:number]), counts[number])))
        time.sleep(0.2)
    return asked


@pytest.mark.parametrize(
    ("counts", "frames"),
    [
        ([4], [4]),
        ([1, 3], [4]),
        ([2, 1, 1], [4]),
        ([3, 4], [3, 4]),  # the second does not fit: the first goes on its way
    ],
)
def test_rows_of_requests_fill_batches_in_order(counts: list[int], frames: list[int]) -> None:
    pipeline = Doubling(inputs=BATCH)
    with batching(pipeline, LONG_S) as (server, pool):
        for number, future in enumerate(asked_in_turn(server, pool, counts)):
            values = rows(sum(counts[:number]), counts[number])
            assert (2 * values).tobytes() == future.result().tobytes()
    first = 0
    for (frame,), count in zip(pipeline.frames, frames, strict=True):
        assert (4, 3) == frame.shape
        assert rows(first, count).tobytes() == frame[:count].tobytes()
        first += count


def test_a_batch_that_is_not_full_goes_after_the_delay_and_its_padding_to_nobody() -> None:
    pipeline = Doubling(inputs=BATCH)
    with batching(pipeline, 0.3) as (server, _):
        began = time.monotonic()
        assert (2 * rows(5, 2)).tobytes() == ask(server.http, rows(5, 2)).tobytes()
        assert 0.3 <= time.monotonic() - began < 5
    ((frame,),) = pipeline.frames
    assert np.array_equal(rows(5, 2)[[0, 1, 1, 1]], frame)


def test_a_request_whose_time_is_over_leaves_its_batch() -> None:
    pipeline = Doubling(inputs=BATCH)
    with batching(pipeline, LONG_S) as (server, pool):
        with pytest.raises(InferenceServerException, match=r"no result within 0\.1 s"):
            ask(server.http, rows(0, 3), timeout_us=100_000)
        counts = [1, 3]
        for future, count in zip(asked_in_turn(server, pool, counts), counts, strict=True):
            assert count == len(future.result())
    ((frame,),) = pipeline.frames
    assert rows(0, 4).tobytes() == frame.tobytes()


def test_a_batch_is_withdrawn_when_all_its_clients_have_gone() -> None:
    pipeline = Doubling(inputs=BATCH)
    with batching(pipeline, 0.0) as (server, pool):
        pipeline.hold()
        first = pool.submit(ask, server.http, rows(0, 4))
        time.sleep(0.3)
        with pytest.raises(InferenceServerException, match="no result within"):
            ask(server.http, rows(4, 4), timeout_us=100_000)
        pipeline.release()
        assert 4 == len(first.result())
    assert 1 == pipeline.computed


def test_a_full_queue_refuses_the_first_request_of_another_batch() -> None:
    pipeline = Doubling(inputs=BATCH, limit=1)
    with batching(pipeline, 0.0) as (server, pool):
        pipeline.hold()
        first = pool.submit(ask, server.http, rows(0, 1))
        time.sleep(0.3)
        with pytest.raises(InferenceServerException, match="have no result yet"):
            ask(server.http, rows(1, 1))
        pipeline.release()
        assert 1 == len(first.result())


def test_a_request_that_an_engine_refuses_harms_no_other_of_its_batch() -> None:
    pipeline = Doubling(inputs=BATCH, refuses=4.0)  # in row 1
    with batching(pipeline, LONG_S) as (server, pool):
        first, second, third = asked_in_turn(server, pool, [1, 2, 1])
        with pytest.raises(InferenceServerException, match=r"4\.0 is not allowed") as caught:
            second.result()
        assert "400" == caught.value.status()
        assert (2 * rows(0, 1)).tobytes() == first.result().tobytes()
        assert (2 * rows(3, 1)).tobytes() == third.result().tobytes()
    assert 4 == len(pipeline.frames)  # all together, then each by itself


def test_a_job_that_fails_tells_all_of_a_batch() -> None:
    pipeline = Doubling(inputs=BATCH)
    with batching(pipeline, LONG_S) as (server, pool):
        pipeline.hold()
        asked = asked_in_turn(server, pool, [2, 2])
        pipeline.fail("rank 1 was killed")
        pipeline.release()
        for future in asked:
            with pytest.raises(InferenceServerException, match="rank 1 was killed"):
                future.result()


@pytest.mark.parametrize("count", [0, 5])
def test_no_rows_and_more_than_a_batch_has_are_refused(count: int) -> None:
    with (
        batching(Doubling(inputs=BATCH), 0.0) as (server, _),
        pytest.raises(InferenceServerException, match=r"rows|expected at most \[4, 3\]$"),
    ):
        ask(server.http, rows(0, count))


def test_clients_are_told_that_the_number_of_rows_is_open() -> None:
    with batching(Doubling(inputs=BATCH), 0.0) as (server, _):
        client = tritonclient.grpc.InferenceServerClient(server.grpc)
        metadata = client.get_model_metadata("double", as_json=True)
        client.close()
    assert ["-1", "3"] == metadata["inputs"][0]["shape"]


def test_a_delay_is_refused_if_no_model_has_batches() -> None:
    alone = Doubling(inputs=(Tensor("x", "float32", (1, 3)),))
    with pytest.raises(RankSliceError, match="no model has a batch"), served(alone, max_delay_s=1):
        pass
