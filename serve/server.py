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
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.serve.access import Access, Address, Limits, listen
from rankslice.serve.batches import Batches, batch_size, batched
from rankslice.serve.log import log
from rankslice.serve.models import Model, Models, ServedPipeline, drained
from rankslice.serve.repository import Changes, ServedJob, Version, find_versions

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
    watch_s: float | None = None
    """How often folders are looked at; ``None``: only when a signal says so."""


class Serving:
    """Models at their addresses. For one event loop."""

    def __init__(self, jobs: Sequence[ServedJob], options: ServeOptions) -> None:
        check_installed()
        from rankslice.serve.metrics import Metrics

        self.access = options.access
        pipelines = [job.pipeline for job in jobs if job.pipeline is not None]
        served = batched(pipelines, options.max_delay_s)
        self.models = Models(
            [Model(pipeline, job.version) for pipeline, job in zip(served, jobs, strict=True)]
        )
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


async def serve(served: Served, options: ServeOptions, on_ready: Callable[[Serving], None]) -> int:
    """Serve jobs until SIGTERM or SIGINT comes; return the exit code.

    At the first signal requests that have come are answered, and the jobs end; a second one ends
    them at once. SIGHUP has the folders opened anew, one after the other.

    Raises:
        RankSliceError: a job does not start, or something cannot be served.
    """
    signals = _Signals()
    is_over = has_failed = False
    try:
        serving = Serving(served.jobs, options)
        await serving.start()
        try:
            if await _first(serving.models.wait_until_ready(), signals.once.wait()):
                on_ready(serving)
                failures = _Failures(serving.models)
                reloading = _Reloading(serving.models, served, options).run(signals.reload)
                work = asyncio.gather(failures.watch(), reloading)
                await _first(work, signals.once.wait())
                log(logging.INFO, "draining", "answering the accepted requests, then ending")
                is_over = await _first(_drain(serving, served.jobs), signals.twice.wait())
                has_failed = failures.tell()
        finally:
            if not is_over:
                await _end_all(job.abort for job in served.jobs)
                await serving.end()
    finally:
        await _end_all(job.abort for job in served.jobs)
    return 128 + signals.last if signals.twice.is_set() else int(has_failed)


async def _drain(serving: Serving, jobs: Sequence[ServedJob]) -> None:
    await serving.drain()
    await serving.end()
    await _end_all(job.close for job in jobs)


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
                model.log(logging.ERROR, "failed", f": {pipeline.error}")
        return any(model.has_failed for model in self._models)


class Served:
    """The jobs of all versions in folders, opened."""

    def __init__(self, folders: Sequence[Path], job_of: Callable[[Version], ServedJob]) -> None:
        """Take what makes the job of a version, which is not opened yet."""
        self.changes = Changes(folders)
        self.job_of = job_of
        self.jobs = [job_of(version) for version in find_versions(folders)]

    def open(self) -> None:
        for job in self.jobs:
            job.open()

    def abort(self) -> None:
        for job in self.jobs:
            job.abort()


class _Reloading:
    """Follows changes in folders, and opens them anew when told to."""

    def __init__(self, models: Models, served: Served, options: ServeOptions) -> None:
        self._models, self._served, self._options = models, served, options

    async def run(self, told: asyncio.Event) -> None:
        """Follow, until cancelled; ``told``: to open all folders anew."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(told.wait(), self._options.watch_s)
            is_told = told.is_set()
            told.clear()
            take = partial(self._served.changes.take, at_once=is_told)
            new, changed, gone = await asyncio.to_thread(take)
            if is_told:
                changed = [job.version for job in self._served.jobs if job.version not in gone]
            for version in gone:
                await self._remove(version)
            for version in changed:
                await self._replace(version)
            for version in new:
                await self._add(version)

    def _job(self, version: Version) -> ServedJob:
        return next(job for job in self._served.jobs if job.version == version)

    async def _add(self, version: Version) -> None:
        job = self._served.job_of(version)
        self._served.jobs.append(job)
        try:
            pipeline = await asyncio.to_thread(job.open)
            await asyncio.to_thread(pipeline.wait_until_ready)
            model = Model(self._batched(pipeline), version)
            self._models.add(model)
        except RankSliceError as error:
            self._served.jobs.remove(job)
            await asyncio.to_thread(job.abort)
            message = f"{version.folder} is not served: {error}"
            log(logging.WARNING, "not_loaded", message, model=version.model)
            return
        model.log(logging.INFO, "loaded", " is ready")

    async def _remove(self, version: Version) -> None:
        job, model = self._job(version), self._models.of(version)
        self._models.remove(model)
        await model.released()
        await model.drained()
        await asyncio.to_thread(job.close)
        self._served.jobs.remove(job)
        model.log(logging.INFO, "removed", " is not served any more")

    async def _replace(self, version: Version) -> None:
        """Open a folder anew, unless it cannot be opened."""
        job, model = self._job(version), self._models.of(version)
        try:
            await asyncio.to_thread(job.check)
        except RankSliceError as error:
            model.log(logging.WARNING, "not_reloaded", f" is left unchanged: {error}")
            return
        model.log(logging.INFO, "reloading", f": {version.folder} is reloaded")
        try:
            pipeline = await asyncio.to_thread(job.open_beside)
        except RankSliceError as error:
            if not self._served.changes.is_settled(version):  # it is still being copied
                return
            text = f" is stopped first, as both jobs do not run at once: {error}"
            model.log(logging.WARNING, "stopped_first", text)
            await self._restart(model, job)
            return
        old = model.pipeline
        model.renew(self._batched(pipeline, like=old))
        await drained(old)
        await asyncio.to_thread(job.take, pipeline)
        model.log(logging.INFO, "ready", " is ready")

    async def _restart(self, model: Model, job: ServedJob) -> None:
        model.close("is reloading", retry_after_s=1)
        await model.drained()
        try:
            pipeline = await asyncio.to_thread(job.open)
        except RankSliceError as error:
            model.fail(error)
            model.log(logging.ERROR, "failed", f": {error}")
            return
        model.renew(self._batched(pipeline, like=model.pipeline))
        with suppress(RankSliceError):  # logged as any failure
            await asyncio.to_thread(pipeline.wait_until_ready)
            model.log(logging.INFO, "ready", " is ready")

    def _batched(self, pipeline: Pipeline, like: ServedPipeline | None = None) -> ServedPipeline:
        """Return what a model is served by; ``like``: with batches if that has them."""
        has_batches = isinstance(like, Batches) if like is not None else batch_size(pipeline) > 1
        return next(batched([pipeline], self._options.max_delay_s if has_batches else None))


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


async def return_free_memory() -> None:
    """Return memory that is free to the system, now and then, until cancelled.

    The C library would keep it: 590 MB of 750 were still there 30 s after clients had gone.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(_TRIM_EVERY_S)
        await asyncio.to_thread(trim, 0)
