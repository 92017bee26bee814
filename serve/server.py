"""``rankslice serve``: answer requests with pipelines until a signal comes."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.serve.access import Access, Address, Limits, listen
from rankslice.serve.batches import Batches, batched
from rankslice.serve.log import log
from rankslice.serve.models import Model, Models, ServedPipeline
from rankslice.session.prepare import PreparedRun

if TYPE_CHECKING:
    from rankslice.session.pipeline import Pipeline


MISSING = "pip install 'rankslice[serve]'"
_PACKAGES = ("google.protobuf", "grpc", "prometheus_client", "starlette", "uvicorn")
_POLL_S = 0.1
_LOG_EVERY_S = 60.0
_TRIM_EVERY_S = 10.0


@dataclass(frozen=True)
class ServeOptions:
    http: Address | None = None
    grpc: Address | None = None
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    max_delay_s: float | None = None
    """How long a request may wait for others of its batch; ``None``: each is a frame."""


class Serving:
    """Models at their addresses. For one event loop."""

    def __init__(self, pipelines: Sequence[Pipeline], options: ServeOptions) -> None:
        check_installed()
        from rankslice.serve.metrics import Metrics

        self.access = options.access
        served = batched(pipelines, options.max_delay_s)
        self.models = Models([Model(pipeline) for pipeline in served])
        self.metrics = Metrics(self.models)
        self.http = self.grpc = None
        self._servers: list[Any] = []
        common = self.models, self.metrics, options.access, options.limits
        if options.http is not None:
            from rankslice.serve.http import HttpServer

            listener = listen("--http", options.http)
            self.http = Address(options.http.host, listener.getsockname()[1])
            self._servers.append(HttpServer(listener, *common))
        if options.grpc is not None:
            from rankslice.serve.grpc import GrpcServer

            server = GrpcServer(str(options.grpc), *common)
            self.grpc = Address(options.grpc.host, server.port)
            self._servers.append(server)

    async def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_LoopErrors())
        await asyncio.gather(*(server.start() for server in self._servers))
        self._tidying = asyncio.ensure_future(return_free_memory())

    async def drain(self) -> None:
        """Take no more requests; return when all others are answered."""
        for model in self.models:
            model.close()
        await asyncio.gather(*(model.drained() for model in self.models))

    async def end(self) -> None:
        """Stop answering; return when all connections are closed."""
        self._tidying.cancel()
        await asyncio.gather(*(server.end() for server in self._servers))


def check_installed() -> None:
    """Raise :class:`RankSliceError` if a package that the server needs is not installed."""
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError:
            problem = f"needs the package {package.partition('.')[0]}"
            raise RankSliceError(Mistake("rankslice serve", problem, MISSING)) from None


async def serve(
    jobs: Sequence[ServedJob], options: ServeOptions, on_ready: Callable[[Serving], None]
) -> int:
    """Serve jobs until SIGTERM or SIGINT comes; return the exit code.

    At the first signal requests that have come are answered, and the jobs end; a second one ends
    them at once. SIGHUP has the jobs end and their folders opened anew, one after the other.

    Raises:
        RankSliceError: a job does not start, or something cannot be served.
    """
    signals = _Signals()
    is_over = has_failed = False
    try:
        serving = Serving([job.pipeline for job in jobs if job.pipeline is not None], options)
        await serving.start()
        try:
            if await _first(serving.models.wait_until_ready(), signals.once.wait()):
                on_ready(serving)
                failures = _Failures(serving.models)
                reloading = _reload_at(signals, serving, jobs, options.max_delay_s)
                work = asyncio.gather(failures.watch(), reloading)
                await _first(work, signals.once.wait())
                log(logging.INFO, "draining", "answering the accepted requests, then ending")
                is_over = await _first(_drain(serving, jobs), signals.twice.wait())
                has_failed = failures.tell()
        finally:
            if not is_over:
                await _end_all(job.abort for job in jobs)
                await serving.end()
    finally:
        await _end_all(job.abort for job in jobs)
    return 128 + signals.last if signals.twice.is_set() else int(has_failed)


async def _drain(serving: Serving, jobs: Sequence[ServedJob]) -> None:
    await serving.drain()
    await serving.end()
    await _end_all(job.pipeline.close for job in jobs if job.pipeline is not None)


class _Failures:
    """Logs jobs that fail, each once."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._logged: list[ServedPipeline] = []

    async def watch(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(_POLL_S)

    def tell(self) -> bool:
        """Log new failures; return whether a model has failed and was not opened anew."""
        for model in self._models:
            pipeline = model.pipeline
            if pipeline.state == "failed" and pipeline not in self._logged:
                self._logged = [model.pipeline for model in self._models if model.has_failed]
                message = f"{model.name}: {pipeline.error}"
                log(logging.ERROR, "failed", message, model=model.name)
        return any(model.has_failed for model in self._models)


async def _reload_at(
    signals: _Signals, serving: Serving, jobs: Sequence[ServedJob], max_delay_s: float | None
) -> None:
    """Open all folders anew whenever a signal says so, until cancelled."""
    while True:
        await signals.reload.wait()
        signals.reload.clear()
        for model, job in zip(serving.models, jobs, strict=True):
            await _reload(model, job, max_delay_s)


async def _reload(model: Model, job: ServedJob, max_delay_s: float | None) -> None:
    """Open a model's folder anew, unless it cannot be opened."""
    try:
        await asyncio.to_thread(job.check)
    except RankSliceError as error:
        message = f"{model.name} is left unchanged: {error}"
        log(logging.WARNING, "not_reloaded", message, model=model.name)
        return
    log(logging.INFO, "reloading", f"{model.name}: {job.folder} is reloaded", model=model.name)
    model.close("is reloading", retry_after_s=1)
    await model.drained()
    try:
        pipeline = await asyncio.to_thread(job.open)
    except RankSliceError as error:
        model.fail(error)
        log(logging.ERROR, "failed", f"{model.name}: {error}", model=model.name)
        return
    is_batched = isinstance(model.pipeline, Batches)
    model.renew(next(batched([pipeline], max_delay_s if is_batched else None)))
    with suppress(RankSliceError):  # logged as any failure
        await asyncio.to_thread(model.pipeline.wait_until_ready)
        log(logging.INFO, "ready", f"{model.name} is ready", model=model.name)


async def _end_all(ends: Iterable[Callable[[], None]]) -> None:
    await asyncio.gather(*map(asyncio.to_thread, ends))


class _LoopErrors:
    """Logs errors of the event loop; once a minute that no connection can be accepted.

    asyncio tells that thousands of times a second.
    """

    _logged_s = -_LOG_EVERY_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, now_s = context.get("exception"), time.monotonic()
        if not isinstance(error, OSError) or "socket" not in context:
            loop.default_exception_handler(context)
        elif now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            message = f"no connection can be accepted: {error.strerror}; see ulimit -n"
            log(logging.ERROR, "no_connection", message)


class _Signals:
    """How often the command was told to end, and whether to reload."""

    def __init__(self) -> None:
        self.once, self.twice, self.reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.last = 0
        loop = asyncio.get_running_loop()
        ending = [signal.SIGTERM, signal.SIGINT]
        if sys.stdin.isatty():  # it comes when the terminal closes
            ending.append(signal.SIGHUP)
        else:
            loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        for number in ending:
            loop.add_signal_handler(number, self._note, number)

    def _note(self, number: int) -> None:
        self.last = number
        (self.twice if self.once.is_set() else self.once).set()


async def _first(work: Awaitable[object], stop: Awaitable[object]) -> bool:
    tasks = [asyncio.ensure_future(awaited) for awaited in (work, stop)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        # asyncio logs what a gathering future ends with, unless somebody takes it.
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class ServedJob:
    """The job of a build folder. Its methods block."""

    folder: Path
    """As the user named it: a link may lead elsewhere later."""
    start: Callable[[Path], Pipeline]
    """Starts the job of a folder, and does not wait until it is ready."""
    prepare: Callable[[Path], PreparedRun]
    """Checks a folder whose job is to be started, as far as that is possible beside another one."""
    pipeline: Pipeline | None = None

    def open(self) -> Pipeline:
        """Start the job, after the end of the one before."""
        if self.pipeline is not None:
            self.pipeline.close()
        self.pipeline = self.start(self.folder)
        return self.pipeline

    def check(self) -> None:
        """Check whether the folder can take the place of the one whose job runs."""
        prepared = self.prepare(self.folder)
        job, running = prepared.plan.job, self.pipeline
        if running is None:
            return
        for what, before, after in (
            ("name", running.name, Path(job.model).stem),
            ("inputs", _shown(running.inputs), _shown(job.inputs)),
            ("outputs", _shown(running.outputs), _shown(job.outputs)),
        ):
            if before != after:
                mistake = f"the {what} of its model changed: {after}, before {before}"
                raise RankSliceError(Mistake(str(prepared.folder), mistake, "restart the server"))

    def abort(self) -> None:
        if self.pipeline is not None:
            self.pipeline.abort()


def _shown(specs: Sequence[Tensor]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)


async def return_free_memory() -> None:
    """Return memory that is free to the system, now and then, until cancelled.

    The C library would keep it: 590 MB of 750 were still there 30 s after clients had gone.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(_TRIM_EVERY_S)
        await asyncio.to_thread(trim, 0)
