"""Run neural networks across the accelerators of several small boards, one MPI rank per slice."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankslice.commands.bench.cli import bench as bench, bench_scenario as bench_scenario
    from rankslice.commands.build.cli import build as build
    from rankslice.commands.deploy.cli import deploy as deploy
    from rankslice.commands.explore.cli import explore as explore
    from rankslice.commands.inspect.cli import inspect as inspect
    from rankslice.commands.profile.cli import profile as profile
    from rankslice.commands.replay.cli import replay as replay
    from rankslice.commands.report.cli import report as report
    from rankslice.commands.run.cli import open as open, run as run
    from rankslice.commands.simulate.cli import simulate as simulate
    from rankslice.commands.trace.cli import trace as trace
    from rankslice.framework.errors import RankSliceError as RankSliceError
    from rankslice.session.fail_over import Restart as Restart
    from rankslice.session.keeper.frame_keeper import (
        FailedFrameError as FailedFrameError,
        PipelineError as PipelineError,
        QueueFullError as QueueFullError,
    )
    from rankslice.session.pipeline import Pipeline as Pipeline

__version__ = "0.1.0"

_COMMANDS = (
    *("bench", "build", "deploy", "explore", "inspect", "profile", "replay", "report", "run"),
    *("simulate", "trace"),
)
_MODULES = {
    **{name: f"rankslice.commands.{name}.cli" for name in _COMMANDS},
    "FailedFrameError": "rankslice.session.keeper.frame_keeper",
    "Pipeline": "rankslice.session.pipeline",
    "PipelineError": "rankslice.session.keeper.frame_keeper",
    "QueueFullError": "rankslice.session.keeper.frame_keeper",
    "RankSliceError": "rankslice.framework.errors",
    "Restart": "rankslice.session.fail_over",
    "bench_scenario": "rankslice.commands.bench.cli",
    "open": "rankslice.commands.run.cli",
}
"""The module of each name that the package offers. It is imported when the name is used."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
