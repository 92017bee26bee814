"""Run neural networks across the accelerators of several small boards, one MPI rank per slice."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankslice.commands.bench.function import bench as bench
    from rankslice.commands.bench.function import bench_scenario as bench_scenario
    from rankslice.commands.build.function import build as build
    from rankslice.commands.deploy.function import deploy as deploy
    from rankslice.commands.explore.function import explore as explore
    from rankslice.commands.inspect.function import inspect as inspect
    from rankslice.session.pipeline import FailedFrameError as FailedFrameError
    from rankslice.session.pipeline import Pipeline as Pipeline
    from rankslice.session.pipeline import PipelineError as PipelineError
    from rankslice.session.pipeline import QueueFullError as QueueFullError
    from rankslice.session.pipeline import Restart as Restart
    from rankslice.commands.run.open import open as open
    from rankslice.commands.profile.function import profile as profile
    from rankslice.commands.report.function import report as report
    from rankslice.commands.replay.function import replay as replay
    from rankslice.commands.run.function import run as run
    from rankslice.commands.simulate.function import simulate as simulate
    from rankslice.commands.trace.function import trace as trace
    from rankslice.framework.errors import RankSliceError as RankSliceError

__version__ = "0.1.0"

_PLACES = {
    "FailedFrameError": ("rankslice.session.pipeline", "FailedFrameError"),
    "Pipeline": ("rankslice.session.pipeline", "Pipeline"),
    "PipelineError": ("rankslice.session.pipeline", "PipelineError"),
    "QueueFullError": ("rankslice.session.pipeline", "QueueFullError"),
    "Restart": ("rankslice.session.pipeline", "Restart"),
    "RankSliceError": ("rankslice.framework.errors", "RankSliceError"),
    "bench": ("rankslice.commands.bench.function", "bench"),
    "bench_scenario": ("rankslice.commands.bench.function", "bench_scenario"),
    "build": ("rankslice.commands.build.function", "build"),
    "deploy": ("rankslice.commands.deploy.function", "deploy"),
    "explore": ("rankslice.commands.explore.function", "explore"),
    "inspect": ("rankslice.commands.inspect.function", "inspect"),
    "open": ("rankslice.commands.run.open", "open"),
    "profile": ("rankslice.commands.profile.function", "profile"),
    "report": ("rankslice.commands.report.function", "report"),
    "replay": ("rankslice.commands.replay.function", "replay"),
    "run": ("rankslice.commands.run.function", "run"),
    "simulate": ("rankslice.commands.simulate.function", "simulate"),
    "trace": ("rankslice.commands.trace.function", "trace"),
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
