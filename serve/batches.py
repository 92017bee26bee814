"""Requests of several clients in one frame, for models that were built with a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.frame_arrays import arrays_of
from rankslice.session.keeper.frame_keeper import FailedFrameError, QueueFullError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankslice.session.pipeline import Pipeline

_Arrays = dict[str, "NDArray[Any]"]


def batch_size(pipeline: Pipeline) -> int:
    """Return how many rows a frame has; 1 if that is no batch.

    It is the first size of all inputs and outputs, and all sizes are fixed.
    """
    specs = (*pipeline.inputs, *pipeline.outputs)
    sizes = {spec.shape[0] if spec.shape and not spec.is_open else 1 for spec in specs}
    return max(1, sizes.pop()) if len(sizes) == 1 else 1


def batched(
    pipelines: Sequence[Pipeline], max_delay_s: float | None
) -> Iterator[Pipeline | Batches]:
    """Yield the pipelines, with requests put together where frames are batches.

    A request waits at most ``max_delay_s`` for others; ``None``: each is a frame.
    """
    sizes = list(map(batch_size, pipelines))
    if max_delay_s is not None and max(sizes) == 1:
        problem = "no model has a batch: a first size above 1, the same in all inputs and outputs"
        raise RankSliceError(Mistake("--max-delay", problem, "build with --shape, or leave it out"))
    for pipeline, size in zip(pipelines, sizes, strict=True):
        if max_delay_s is None or size == 1:
            yield pipeline
        else:
            yield Batches(pipeline, max_delay_s)


@dataclass(slots=True)
class _Part:
    arrays: Sequence[NDArray[Any]]
    future: Future[_Arrays] = field(default_factory=Future)

    @property
    def rows(self) -> int:
        return len(self.arrays[0])


class Batches:
    """A pipeline whose frames have the rows of several requests. For one event loop.

    A batch goes on its way when it is full, when a request does not fit any more, or some time
    after its first request. Rows that are missing repeat the last one; nobody gets their results.
    """

    def __init__(self, pipeline: Pipeline, max_delay_s: float) -> None:
        """Take a pipeline whose frames are batches, and how long a request waits for others."""
        self._pipeline = pipeline
        self._max_delay_s = max_delay_s
        self._size = batch_size(pipeline)
        self._waiting: list[_Part] = []
        self._timer: asyncio.TimerHandle | None = None
        self.inputs = tuple(map(_of_any_rows, pipeline.inputs))
        self.outputs = tuple(map(_of_any_rows, pipeline.outputs))

    @property
    def kept(self) -> int:
        """Frames without a result, and the batch that is being filled."""
        return self._pipeline.kept + bool(self._waiting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def submit(
        self, frame: Mapping[str, NDArray[Any]], timeout: float | None = None
    ) -> Future[_Arrays]:
        """Give one row or more of a request; return the future of their results.

        There is no wait for room: without it for another batch, it raises :class:`QueueFullError`.
        """
        part = _Part(arrays_of(frame, self.inputs))
        if not part.rows:
            raise RankSliceError(Mistake("frame", "has no rows", f"expected 1 to {self._size}"))
        if self._rows + part.rows > self._size:
            self._send()
        if not self._waiting:
            if self._pipeline.kept >= self._pipeline.limit:
                raise QueueFullError(f"{self._pipeline.limit} batches have no result yet")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._max_delay_s, self._send)
        self._waiting.append(part)
        if self._rows == self._size:
            self._send()
        return part.future

    @property
    def _rows(self) -> int:
        return sum(part.rows for part in self._waiting if not part.future.cancelled())

    def _send(self) -> None:
        """Give the batch to the pipeline, but for requests that were withdrawn."""
        if self._timer is not None:
            self._timer.cancel()
        parts = [part for part in self._waiting if not part.future.cancelled()]
        self._waiting = []
        if parts:
            self._give(parts)

    def _give(self, parts: Sequence[_Part]) -> None:
        frame = {
            spec.name: _padded([part.arrays[number] for part in parts], self._size)
            for number, spec in enumerate(self.inputs)
        }
        try:
            batch = self._pipeline.submit(frame, timeout=0)
        except RankSliceError as error:
            for part in parts:
                _settle(part, error)
            return
        for part in parts:
            part.future.add_done_callback(lambda _: _withdraw(batch, parts))
        batch.add_done_callback(lambda _: self._hand_out(batch, parts))

    def _hand_out(self, batch: Future[_Arrays], parts: Sequence[_Part]) -> None:
        if batch.cancelled():
            return
        error, first = batch.exception(), 0
        for part in parts:
            if isinstance(error, FailedFrameError) and parts[1:]:
                self._give([part])
            elif error is not None:
                _settle(part, error)
            else:
                rows = slice(first, first + part.rows)
                _settle(part, {name: values[rows] for name, values in batch.result().items()})
            first += part.rows


def _of_any_rows(spec: Tensor) -> Tensor:
    return replace(spec, symbols=("batch", *[""] * (len(spec.shape) - 1)))


def _padded(rows: Sequence[NDArray[Any]], size: int) -> NDArray[Any]:
    """Return the rows of a batch, the last one repeated."""
    missing = size - sum(map(len, rows))
    return np.concatenate([*rows, np.repeat(rows[-1][-1:], missing, axis=0)])


def _withdraw(batch: Future[_Arrays], parts: Sequence[_Part]) -> None:
    if all(part.future.cancelled() for part in parts):
        batch.cancel()


def _settle(part: _Part, result: _Arrays | BaseException) -> None:
    if not part.future.set_running_or_notify_cancel():
        return
    if isinstance(result, BaseException):
        part.future.set_exception(result)
    else:
        part.future.set_result(result)
