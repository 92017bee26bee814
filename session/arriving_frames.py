"""Options for arriving frames: times from a file, the choice of the route, and their variation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.arrivals import parse_arrival_times
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.option_records import option
from rankslice.framework.plan import Plan

_MAX_FRAMES = 10_000_000


def arrivals_in(path: Path) -> NDArray[np.float64]:
    """Return the times of arrivals in a file, ascending, in seconds.

    Raises:
        RankSliceError: it cannot be read, or lines are no times in order; all are named.
    """
    times, faults = parse_arrival_times(read_text(path, "an arrivals"))
    expected = "expected seconds from the start, ascending, one number per line"
    raise_mistakes(
        Mistake(f"{path.name}, line {number}", fault, expected) for number, fault in faults
    )
    if not times:
        raise RankSliceError(Mistake(path.name, "has no arrivals", "expected one number per line"))
    if len(times) > _MAX_FRAMES:
        raise RankSliceError(Mistake(path.name, f"has more than {_MAX_FRAMES} arrivals"))
    return np.array(times)


@dataclass(frozen=True, slots=True)
class Variation:
    """How times vary, and what it takes to read a frame."""

    read_ms: float | None = option(
        None,
        "Time to read a frame, as 'run' shows it (default: that of copying it).",
        float,
        least=0,
        most=1e6,
    )
    scatter: bool = option(
        False, "Vary times from frame to frame like the measured ones.", excludes=("jitter",)
    )
    jitter: float = option(
        0.0,
        "Instead of --scatter: standard deviation of times, relative to the mean.",
        float,
        least=0,
        most=10,
    )
    seed: int = option(
        0, "Random seed of --scatter, --jitter and of sizes that change.", int, least=0
    )


USUAL = RunOptions()
STEADY = Variation()
"""Times are the same for every frame."""

SWITCHING = tuple(
    option.name
    for option in fields(RunOptions)
    if option.name.startswith(("switch", "surge_", "normal_"))
)
"""Names of the options that choose a route."""


def refuse_switching(plan: Plan, options: RunOptions, where: str) -> None:
    changed = [name for name in SWITCHING if getattr(options, name) != getattr(USUAL, name)]
    if plan.surge is None and changed:
        name = changed[0].removesuffix("_s").replace("_", "-")
        expected = "build with --surge MAPPING for a second one"
        raise RankSliceError(Mistake(f"{where}: --{name}", "there is one route", expected))
