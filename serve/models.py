"""The models of a server: each is a pipeline, in one of several states."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import listed, quoted
from rankslice.serve.log import log
from rankslice.serve.protocol.tensors import (
    Reason,
    RefusalError,
    Request,
    check_served,
    invalid,
    metadata_of,
)
from rankslice.serve.repository import ONLY_VERSION, Version
from rankslice.session.frame_arrays import arrays_of
from rankslice.session.keeper.frame_keeper import FailedFrameError, PipelineError, QueueFullError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankslice.backend.runtime.sources.image_input import ImageInput
    from rankslice.serve.batches import Batches
    from rankslice.session.pipeline import Pipeline


ServedPipeline: TypeAlias = "Pipeline | Batches"

PLATFORM = "rankslice"
_POLL_S = 0.05


class Model:
    """A version of a model and the pipeline that computes it.

    All but :attr:`pipeline` is for one event loop.
    """

    def __init__(self, pipeline: ServedPipeline, place: Version | None = None) -> None:
        """Take a pipeline, and where its folder is; ``None``: it is the only version."""
        self.pipeline = pipeline
        self.place = place
        self.name = (place and place.model) or pipeline.name
        self.version = ONLY_VERSION if place is None else place.number
        self.title = f"{self.name} {self.version}" if place and place.model else self.name
        """Its name, with its version if it may have others."""
        self.inputs: Sequence[Tensor] = pipeline.inputs
        self.outputs: Sequence[Tensor] = pipeline.outputs
        self.images: ImageInput | None = pipeline.images
        """What it takes of images; ``None``: it takes none."""
        self._decoding = asyncio.Lock()
        self._held = 0
        self._closed: RefusalError | None = None
        self._rate = Rate()
        check_served(self.name, (*self.inputs, *self.outputs))

    def log(self, level: int, event: str, text: str) -> None:
        """Log an event of this version; for people the text follows its title."""
        log(level, event, f"{self.title}{text}", model=self.name, version=self.version)

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
        self._closed = RefusalError(Reason.NOT_READY, f"model {self.title} {why}", retry_after_s)

    def fail(self, error: RankSliceError) -> None:
        self._closed = self._failed(error)

    def renew(self, pipeline: ServedPipeline) -> None:
        """Take requests again, for another pipeline of the same name, inputs and outputs."""
        self.pipeline, self._closed = pipeline, None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the job of a version that is removed, for a request that has chosen it."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def released(self) -> None:
        """Wait until no request holds it."""
        while self._held:
            await asyncio.sleep(_POLL_S)

    async def drained(self) -> None:
        await drained(self.pipeline)

    def check_ready(self) -> None:
        """Raise :class:`RefusalError` if it takes no requests."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        state = self.pipeline.state
        if state in ("closing", "ended"):
            raise RefusalError(Reason.NOT_READY, f"model {self.title} is shutting down")
        if state == "failed":
            raise self._failed(self.pipeline.error)
        if state != "ready":
            raise RefusalError(Reason.NOT_READY, f"model {self.title} is {state}", 1)

    async def infer(self, request: Request) -> dict[str, NDArray[Any]]:
        """Return the results of a request; if it is cancelled, so is the frame.

        Raises:
            RefusalError: there are none.
        """
        self.check_ready()
        self._rate.begin(time.monotonic())
        inputs: Mapping[str, Any] = request.inputs
        try:
            if any(isinstance(values, bytes) for values in inputs.values()):
                inputs = await self._decoded(inputs)
            future = self.pipeline.submit(inputs, timeout=0)
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
            raise RefusalError(Reason.LATE, f"model {self.title}: {waited}") from None
        except FailedFrameError as error:
            raise invalid(f"model {self.title}: {error}") from None
        except RankSliceError as error:
            raise self._failed(error) from None
        self._rate.count(time.monotonic())
        return results

    async def _decoded(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the arrays of image files, one request after the other: pixels take memory."""
        async with self._decoding:
            arrays = await asyncio.to_thread(arrays_of, inputs, self.inputs, self.images)
        return {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": [*versions],
            "platform": PLATFORM,
            "inputs": metadata_of(self.inputs),
            "outputs": metadata_of(self.outputs),
        }

    def _full(self) -> RefusalError:
        pipeline = self.pipeline
        wait_s = math.ceil(pipeline.limit / self.fps) if self.fps else 1
        message = f"model {self.title}: {pipeline.limit} requests have no result yet"
        return RefusalError(Reason.QUEUE_FULL, message, min(wait_s, 60))

    def _failed(self, error: RankSliceError | None) -> RefusalError:
        return RefusalError(Reason.FAILED, f"model {self.title}: {error or 'the job has ended'}")


async def drained(pipeline: ServedPipeline) -> None:
    """Wait until all requests that have come are answered."""
    while pipeline.kept and pipeline.state in ("ready", "recovering"):
        await asyncio.sleep(_POLL_S)


class Models:
    """Models by their names, each in one version or more."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models: list[Model] = []
        for model in models:
            self.add(model)

    def add(self, model: Model) -> None:
        """Serve another model or version.

        Raises:
            RankSliceError: it is there already.
        """
        if any(other.name == model.name and other.version == model.version for other in self):
            problem = "two build folders have a model of this name"
            raise RankSliceError(
                Mistake(f"model {quoted(model.title)}", problem, "serve one of them")
            )
        self._models = sorted([*self._models, model], key=lambda model: int(model.version))

    def remove(self, model: Model) -> None:
        """Serve a version no more; requests that it has are still answered."""
        self._models = [other for other in self if other is not model]

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    def of(self, place: Version) -> Model:
        return next(model for model in self if model.place == place)

    @property
    def are_ready(self) -> bool:
        return all(model.is_ready for model in self)

    def versions(self, name: str) -> list[str]:
        return [model.version for model in self if model.name == name]

    def named(self, name: str, version: str = "") -> Model:
        """Return a version of a model; without a number the newest that is ready.

        Raises:
            RefusalError: there is none.
        """
        models = [model for model in self if model.name == name]
        if not models:
            raise RefusalError(Reason.UNKNOWN, f"no model {quoted(name)}")
        if not version:
            return next((model for model in reversed(models) if model.is_ready), models[-1])
        for model in models:
            if model.version == version:
                return model
        message = (
            f"model {name} has no version {quoted(version)}, only {listed(self.versions(name))}"
        )
        raise RefusalError(Reason.UNKNOWN, message)

    def index(self, *, only_ready: bool) -> list[dict[str, str]]:
        """Return all versions of all models, as the extension for repositories has them."""
        entries = []
        for model in sorted(self, key=lambda model: model.name):
            try:
                model.check_ready()
                state, reason = "READY", ""
            except RefusalError as refusal:
                state, reason = "UNAVAILABLE", refusal.message
            if state == "READY" or not only_ready:
                entries.append(
                    {"name": model.name, "version": model.version, "state": state, "reason": reason}
                )
        return entries

    def label(self, name: str) -> str:
        """Return the name for the metrics: none that only a client knows."""
        return name if any(model.name == name for model in self) else ""

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
