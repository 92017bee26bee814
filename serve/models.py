"""The models of a server: each is a pipeline, in one of several states."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import quoted
from rankslice.serve.protocol.tensors import (
    Reason,
    RefusalError,
    Request,
    check_served,
    invalid,
    metadata_of,
)
from rankslice.session.keeper.frame_keeper import FailedFrameError, PipelineError, QueueFullError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankslice.serve.batches import Batches
    from rankslice.session.pipeline import Pipeline


ServedPipeline: TypeAlias = "Pipeline | Batches"

VERSION = "1"
"""Of each model: a build folder has one."""
PLATFORM = "rankslice"
_POLL_S = 0.05


class Model:
    """A model and the pipeline that computes it. All but :attr:`pipeline` is for one event loop."""

    def __init__(self, pipeline: ServedPipeline) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name
        self.inputs: Sequence[Tensor] = pipeline.inputs
        self.outputs: Sequence[Tensor] = pipeline.outputs
        self._closed: RefusalError | None = None
        self._rate = Rate()
        check_served(self.name, (*self.inputs, *self.outputs))

    @property
    def is_ready(self) -> bool:
        return self._closed is None and self.pipeline.state == "ready"

    @property
    def has_failed(self) -> bool:
        """Whether it takes no more requests because of a failure."""
        is_failed = self._closed is not None and self._closed.reason is Reason.FAILED
        return is_failed or self.pipeline.state == "failed"

    @property
    def fps(self) -> float:
        """Results per second, over the last ten."""
        return self._rate.per_second(time.monotonic())

    def close(self, why: str = "is shutting down", retry_after_s: int | None = None) -> None:
        """Take no more requests; tell clients why, and when they may try again."""
        self._closed = RefusalError(Reason.NOT_READY, f"model {self.name} {why}", retry_after_s)

    def fail(self, error: RankSliceError) -> None:
        self._closed = self._failed(error)

    def renew(self, pipeline: ServedPipeline) -> None:
        """Take requests again, for another pipeline of the same name, inputs and outputs."""
        self.pipeline, self._closed = pipeline, None

    async def drained(self) -> None:
        """Wait until all requests that have come are answered."""
        while self.pipeline.kept and self.pipeline.state in ("ready", "recovering"):
            await asyncio.sleep(_POLL_S)

    def check_ready(self) -> None:
        """Raise :class:`RefusalError` if it takes no requests."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        state = self.pipeline.state
        if state in ("closing", "ended"):
            raise RefusalError(Reason.NOT_READY, f"model {self.name} is shutting down")
        if state == "failed":
            raise self._failed(self.pipeline.error)
        if state != "ready":
            raise RefusalError(Reason.NOT_READY, f"model {self.name} is {state}", 1)

    async def infer(self, request: Request) -> dict[str, NDArray[Any]]:
        """Return the results of a request; if it is cancelled, so is the frame.

        Raises:
            RefusalError: there are none.
        """
        self.check_ready()
        self._rate.begin(time.monotonic())
        try:
            future = self.pipeline.submit(request.inputs, timeout=0)
        except QueueFullError:
            raise self._full() from None
        except PipelineError as error:
            raise self._failed(error) from None
        except RankSliceError as error:
            raise invalid(str(error)) from None
        try:
            results = await asyncio.wait_for(asyncio.wrap_future(future), request.timeout_s)
        except asyncio.TimeoutError:
            waited = f"no result within {request.timeout_s:g} s"
            raise RefusalError(Reason.LATE, f"model {self.name}: {waited}") from None
        except FailedFrameError as error:
            raise invalid(f"model {self.name}: {error}") from None
        except RankSliceError as error:
            raise self._failed(error) from None
        self._rate.count(time.monotonic())
        return results

    def metadata(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": PLATFORM,
            "inputs": metadata_of(self.inputs),
            "outputs": metadata_of(self.outputs),
        }

    def _full(self) -> RefusalError:
        pipeline = self.pipeline
        wait_s = math.ceil(pipeline.limit / self.fps) if self.fps else 1
        message = f"model {self.name}: {pipeline.limit} requests have no result yet"
        return RefusalError(Reason.QUEUE_FULL, message, min(wait_s, 60))

    def _failed(self, error: RankSliceError | None) -> RefusalError:
        return RefusalError(Reason.FAILED, f"model {self.name}: {error or 'the job has ended'}")


class Models:
    def __init__(self, models: Sequence[Model]) -> None:
        self._by_name = {model.name: model for model in models}
        if len(self._by_name) < len(models):
            names = [model.name for model in models]
            twice = next(name for name in names if names.count(name) > 1)
            problem = "two build folders have a model of this name"
            raise RankSliceError(Mistake(f"model {quoted(twice)}", problem, "serve one of them"))

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    @property
    def are_ready(self) -> bool:
        return all(model.is_ready for model in self)

    def named(self, name: str, version: str = "") -> Model:
        if name not in self._by_name:
            raise RefusalError(Reason.UNKNOWN, f"no model {quoted(name)}")
        if version not in ("", VERSION):
            message = f"model {name} has no version {quoted(version)}, only {VERSION}"
            raise RefusalError(Reason.UNKNOWN, message)
        return self._by_name[name]

    def label(self, name: str) -> str:
        """Return the name for the metrics: none that only a client knows."""
        return name if name in self._by_name else ""

    async def wait_until_ready(self) -> None:
        await asyncio.gather(
            *(asyncio.to_thread(model.pipeline.wait_until_ready) for model in self)
        )


_OVER_S = 10.0
_MIN_S = 0.1


class Rate:
    """Of events in the last ten seconds, or of the last thousand if that is less."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._times: deque[float] = deque(maxlen=1000)

    def begin(self, now_s: float) -> None:
        """Note that events may come from now on, unless that was noted before."""
        self._began_s = now_s if self._began_s is None else self._began_s

    def count(self, now_s: float) -> None:
        self._times.append(now_s)

    def per_second(self, now_s: float) -> float:
        """Return the rate; what was before :meth:`begin` does not lower it."""
        first_s = max(now_s - _OVER_S, self._began_s or 0.0)
        if len(self._times) == self._times.maxlen:
            first_s = max(first_s, self._times[0])
        return sum(at_s >= first_s for at_s in self._times) / max(now_s - first_s, _MIN_S)
