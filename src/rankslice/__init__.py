"""Run neural networks across the accelerators of several small boards, one MPI rank per slice."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankslice.commands.bench.cli import bench as bench
    from rankslice.commands.bench.cli import bench_scenario as bench_scenario
    from rankslice.commands.build.cli import build as build
    from rankslice.commands.deploy.cli import deploy as deploy
    from rankslice.commands.explore.cli import explore as explore
    from rankslice.commands.inspect.cli import inspect as inspect
    from rankslice.session.pipeline import FailedFrameError as FailedFrameError
    from rankslice.session.pipeline import Pipeline as Pipeline
    from rankslice.session.pipeline import PipelineError as PipelineError
    from rankslice.session.pipeline import QueueFullError as QueueFullError
    from rankslice.session.pipeline import Restart as Restart
    from rankslice.commands.run.cli import open as open
    from rankslice.commands.profile.cli import profile as profile
    from rankslice.commands.report.cli import report as report
    from rankslice.commands.replay.cli import replay as replay
    from rankslice.commands.run.cli import run as run
    from rankslice.commands.simulate.cli import simulate as simulate
    from rankslice.commands.trace.cli import trace as trace
    from rankslice.framework.errors import RankSliceError as RankSliceError

__version__ = "0.1.0"

_PLACES = {
    "FailedFrameError": ("rankslice.session.pipeline", "FailedFrameError"),
    "Pipeline": ("rankslice.session.pipeline", "Pipeline"),
    "PipelineError": ("rankslice.session.pipeline", "PipelineError"),
    "QueueFullError": ("rankslice.session.pipeline", "QueueFullError"),
    "Restart": ("rankslice.session.pipeline", "Restart"),
    "RankSliceError": ("rankslice.framework.errors", "RankSliceError"),
    "bench": ("rankslice.commands.bench.cli", "bench"),
    "bench_scenario": ("rankslice.commands.bench.cli", "bench_scenario"),
    "build": ("rankslice.commands.build.cli", "build"),
    "deploy": ("rankslice.commands.deploy.cli", "deploy"),
    "explore": ("rankslice.commands.explore.cli", "explore"),
    "inspect": ("rankslice.commands.inspect.cli", "inspect"),
    "open": ("rankslice.commands.run.cli", "open"),
    "profile": ("rankslice.commands.profile.cli", "profile"),
    "report": ("rankslice.commands.report.cli", "report"),
    "replay": ("rankslice.commands.replay.cli", "replay"),
    "run": ("rankslice.commands.run.cli", "run"),
    "simulate": ("rankslice.commands.simulate.cli", "simulate"),
    "trace": ("rankslice.commands.trace.cli", "trace"),
}
"""What the package offers, by name: module, and name there. It is imported when it is used."""

__all__ = [
    "FailedFrameError",
    "Pipeline",
    "PipelineError",
    "QueueFullError",
    "RankSliceError",
    "Restart",
    "bench",
    "bench_scenario",
    "build",
    "deploy",
    "explore",
    "inspect",
    "open",
    "profile",
    "report",
    "replay",
    "run",
    "simulate",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _PLACES[name]
    return getattr(importlib.import_module(module), there)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
