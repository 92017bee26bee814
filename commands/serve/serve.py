"""``rankslice serve``: answer requests with pipelines until a signal comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from rankslice.commands.serve.access import Access
from rankslice.commands.serve.address import Address, listen
from rankslice.commands.serve.limits import Limits
from rankslice.commands.serve.models import Model, Models, ServedPipeline
from rankslice.framework.errors import Mistake, RankSliceError

MISSING = "pip install 'rankslice[serve]'"
_PACKAGES = ("google.protobuf", "grpc", "prometheus_client", "starlette", "uvicorn")
_POLL_S = 0.05
_ANSWERING = ("ready", "recovering")


@dataclass(frozen=True)
class ServeOptions:
    """How models are served."""

    http: Address | None = None
    grpc: Address | None = None
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)


class Serving:
    """Models at their addresses. For one event loop."""

    def __init__(self, pipelines: Sequence[ServedPipeline], options: ServeOptions) -> None:
        """Take the addresses.

        Args:
            pipelines: they may be starting.
            options: where and for whom they are served.

        Raises:
            RankSliceError: two models have one name, a type of a tensor or an address cannot be
                served, or a package is not installed.
        """
        check_installed()
        from rankslice.commands.serve.metrics import Metrics

        self.models = Models([Model(pipeline) for pipeline in pipelines])
        self.metrics = Metrics()
        for model in self.models:
            self.metrics.watch(model.name, _figures(model))
        self.http = self.grpc = None
        self._servers: list[Any] = []
        common = self.models, self.metrics, options.access, options.limits
        if options.http is not None:
            from rankslice.commands.serve.http import HttpServer

            listener = listen("--http", options.http)
            self.http = Address(options.http.host, listener.getsockname()[1])
            self._servers.append(HttpServer(listener, *common))
        if options.grpc is not None:
            from rankslice.commands.serve.grpc import GrpcServer

            server = GrpcServer(str(options.grpc), *common)
            self.grpc = Address(options.grpc.host, server.port)
            self._servers.append(server)

    async def start(self) -> None:
        """Answer from now on: that models are starting, until they are ready."""
        await asyncio.gather(*(server.start() for server in self._servers))

    async def drain(self) -> None:
        """Take no more requests; return when all others are answered."""
        for model in self.models:
            model.close()
        pipelines = [model.pipeline for model in self.models]
        while any(each.kept and each.state in _ANSWERING for each in pipelines):
            await asyncio.sleep(_POLL_S)

    async def end(self) -> None:
        """Stop answering; return when all connections are closed."""
        await asyncio.gather(*(server.end() for server in self._servers))


def check_installed() -> None:
    """Raise if a package that the server needs is not installed.

    Raises:
        RankSliceError: see above.
    """
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError:
            found = f"needs the package {package.partition('.')[0]}"
            raise RankSliceError(Mistake("rankslice serve", found, MISSING)) from None


async def serve(
    pipelines: Sequence[ServedPipeline],
    options: ServeOptions,
    on_ready: Callable[[Serving], None],
) -> int:
    """Serve pipelines until SIGTERM or SIGINT comes; return the exit code.

    At the first signal requests that have come are answered, and the jobs end; a second one ends
    them at once.

    Args:
        pipelines: they may be starting; they are closed.
        options: where and for whom they are served.
        on_ready: called when all models are ready.

    Raises:
        RankSliceError: a job does not start, or something cannot be served.
    """
    signals = _Signals()
    is_over = False
    try:
        serving = Serving(pipelines, options)
        await serving.start()
        try:
            if await _first(serving.models.wait_until_ready(), signals.once.wait()):
                on_ready(serving)
                await signals.once.wait()
                is_over = await _first(_drain(serving, pipelines), signals.twice.wait())
        finally:
            if not is_over:
                await serving.end()
    finally:
        await _end_all(pipeline.abort for pipeline in pipelines)
    return 128 + signals.last if signals.twice.is_set() else 0


async def _drain(serving: Serving, pipelines: Sequence[ServedPipeline]) -> None:
    """Answer what has come, then end servers and jobs."""
    await serving.drain()
    await serving.end()
    await _end_all(pipeline.close for pipeline in pipelines)


async def _end_all(ends: Iterable[Callable[[], None]]) -> None:
    await asyncio.gather(*map(asyncio.to_thread, ends))


class _Signals:
    """How often the command was told to end."""

    def __init__(self) -> None:
        self.once, self.twice = asyncio.Event(), asyncio.Event()
        self.last = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._note, number)

    def _note(self, number: int) -> None:
        self.last = number
        (self.twice if self.once.is_set() else self.once).set()


async def _first(work: Awaitable[object], stop: Awaitable[object]) -> bool:
    """Wait for work, or for what stops it; return whether the work is done."""
    tasks = [asyncio.ensure_future(each) for each in (work, stop)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()


def _figures(model: Model) -> dict[str, tuple[str, Callable[[], float]]]:
    """Return what the metrics tell about a model besides its requests."""
    pipeline = model.pipeline
    return {
        "rankslice_frames_per_second": ("Results per second, over ten seconds.", lambda: model.fps),
        "rankslice_frames": ("Frames without a result.", lambda: pipeline.kept),
        "rankslice_frames_limit": ("Most frames without a result.", lambda: pipeline.limit),
        "rankslice_ready": ("Whether the model takes requests.", lambda: model.is_ready),
        "rankslice_restarts": ("Jobs that have taken over.", lambda: pipeline.restarts),
    }
