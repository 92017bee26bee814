"""Options for arriving frames: times from a file, and the choice of the route."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.framework.reading.read_text import read_text
from rankslice.framework.wording import quoted

_MAX_FRAMES = 10_000_000


def read_arrival_times(path: Path) -> NDArray[np.float64]:
    """Return the times of arrivals in a file, ascending, in seconds.

    The file has a number a line; what follows a ``#`` is left out.

    Raises:
        RankSliceError: it cannot be read, a line is not a time, or times run backwards.
    """
    times: list[float] = []
    mistakes = []
    for number, line in enumerate(read_text(path, "an arrivals").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        fault, seconds = _time(text, times[-1] if times else 0.0)
        if fault:
            expected = "expected seconds from the start, ascending, one number per line"
            mistakes.append(Mistake(f"{path.name}, line {number}", fault, expected))
        else:
            times.append(seconds)
    raise_mistakes(mistakes)
    if not times:
        raise RankSliceError(Mistake(path.name, "has no arrivals", "expected one number per line"))
    if len(times) > _MAX_FRAMES:
        raise RankSliceError(Mistake(path.name, f"has more than {_MAX_FRAMES} arrivals"))
    return np.array(times)


def _time(text: str, least: float) -> tuple[str, float]:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        return f"{quoted(text)} is not a time", 0.0
    if seconds < least:
        return f"{text} comes after {least:g}", 0.0
    return "", seconds


USUAL = RunOptions()

SWITCHING = tuple(
    option.name
    for option in fields(RunOptions)
    if option.name.startswith(("switch", "surge_", "normal_"))
)
"""Names of the options that choose a route."""


def refuse_switching(plan: Plan, options: RunOptions, where: str) -> None:
    """Refuse the choice of a route where there is one."""
    changed = [name for name in SWITCHING if getattr(options, name) != getattr(USUAL, name)]
    if plan.surge is None and changed:
        name = changed[0].removesuffix("_s").replace("_", "-")
        expected = "build with --surge MAPPING for a second one"
        raise RankSliceError(Mistake(f"{where}: --{name}", "there is one route", expected))
