"""A server in a thread, with pipelines that need no job: they double their inputs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.frame_records import Failure
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sources.image_input import ImageInput
from rankslice.framework.errors import RankSliceError
from rankslice.serve.access import Access, Address, Limits
from rankslice.serve.repository import ServedJob, Version
from rankslice.serve.server import ServeOptions, Serving
from rankslice.session.frame_arrays import arrays_of
from rankslice.session.keeper.frame_keeper import FailedFrameError, PipelineError, QueueFullError
from rankslice.session.pipeline import Pipeline


@dataclass
class Doubling:
    """A pipeline of one rank: output ``twice_NAME`` is twice the input of that name."""

    name: str = "double"
    inputs: tuple[Tensor, ...] = (Tensor("x", "float32", (2, 3)),)
    delay_s: float = 0.0
    images: ImageInput | None = None
    limit: int = 64
    state: str = "ready"
    error: RankSliceError | None = None
    kept: int = 0
    restarts: int = 0
    is_closed: bool = False
    refuses: float | None = None
    """A value that no frame may have."""
    computed: int = 0
    """Frames that were not withdrawn."""
    frames: list[list[NDArray[Any]]] = field(default_factory=list)
    """Those that came, by input."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._rank = ThreadPoolExecutor(1)
        self._go = threading.Event()
        self._go.set()

    def rank_figures(self) -> dict[int, dict[str, float]]:
        return {0: {"cpu_s": 1.5, "compute_share": 0.75, "frames_per_s": 7.0}}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(f"twice_{spec.name}", spec.dtype, spec.shape, spec.symbols)
            for spec in self.inputs
        )

    def hold(self) -> None:
        """Compute nothing until :meth:`release`."""
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def fail(self, message: str) -> None:
        self.error, self.state = RankSliceError(message), "failed"

    def wait_until_ready(self) -> None:
        pass

    def submit(
        self, frame: Mapping[str, NDArray[Any]], timeout: float | None = None
    ) -> Future[dict[str, NDArray[Any]]]:
        arrays = arrays_of(frame, self.inputs)
        with self._lock:
            if self.error is not None:
                raise PipelineError(str(self.error))
            if self.kept >= self.limit:
                raise QueueFullError("full")
            self.kept += 1
            self.frames.append(arrays)
        future = self._rank.submit(self._compute, arrays)
        future.add_done_callback(self._done)
        return future

    def _compute(self, arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self._go.wait(20)
        time.sleep(self.delay_s)
        self.computed += 1
        if self.error is not None:
            raise PipelineError(str(self.error))
        if self.refuses is not None and any((values == self.refuses).any() for values in arrays):
            raise FailedFrameError(17, Failure(1, 0, f"{self.refuses} is not allowed"), ())
        names = [spec.name for spec in self.outputs]
        return {
            name: values if values.dtype == bool else values + values
            for name, values in zip(names, arrays, strict=True)
        }

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self.kept -= 1

    def close(self) -> None:
        self.is_closed = True
        self.state = "ended"
        self._rank.shutdown()

    abort = close


@dataclass(frozen=True)
class Served:
    """A running server."""

    serving: Serving
    loop: asyncio.AbstractEventLoop

    @property
    def http(self) -> str:
        return str(self.serving.http)

    @property
    def grpc(self) -> str:
        return str(self.serving.grpc)

    def drain(self) -> None:
        """Take no more requests; return when all are answered."""
        asyncio.run_coroutine_threadsafe(self.serving.drain(), self.loop).result(20)


def _not_opened(folder: Path) -> NoReturn:
    raise AssertionError(f"{folder} is opened")


@contextmanager
def served(
    *pipelines: Doubling | Pipeline,
    access: Access | None = None,
    limits: Limits | None = None,
    max_delay_s: float | None = None,
) -> Iterator[Served]:
    """Yield a server of pipelines at two free ports."""
    anywhere = Address("127.0.0.1", 0)
    options = ServeOptions(
        anywhere, anywhere, access or Access(), limits or Limits(), max_delay_s=max_delay_s
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Serving:
        jobs = [
            ServedJob(
                Version(Path(str(number))), _not_opened, _not_opened, cast("Pipeline", pipeline)
            )
            for number, pipeline in enumerate(pipelines)
        ]
        serving = Serving(jobs, options)
        await serving.start()
        return serving

    try:
        serving = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        try:
            yield Served(serving, loop)
        finally:
            for pipeline in pipelines:
                if isinstance(pipeline, Doubling):
                    pipeline.release()
            asyncio.run_coroutine_threadsafe(serving.end(), loop).result(30)
    finally:
        for pipeline in pipelines:
            pipeline.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def ones(spec: Tensor) -> NDArray[Any]:
    """Return an input."""
    dtype, shape = spec.storage
    return np.ones(shape, dtype)
