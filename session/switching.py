"""Checks of the options that choose the route of frames, if a job has two."""

from __future__ import annotations

from dataclasses import fields

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan

USUAL = RunOptions()
"""The defaults of these options."""

_SWITCHING = [
    each.name
    for each in fields(RunOptions)
    if each.name.startswith(("switch", "surge_", "normal_"))
]


def check_switching(options: RunOptions) -> None:
    """Refuse options that contradict each other.

    Raises:
        RankSliceError: they do.
    """
    above, below = options.surge_above, options.normal_below
    if below >= above:
        found = f"is {below:g}, and --surge-above {above:g}"
        raise RankSliceError(Mistake("--normal-below", found, "expected a smaller value"))
    waiting, queue = options.surge_queue, options.queue
    if waiting is not None and queue is not None and waiting > queue:
        found = f"is {waiting}, and no more than {queue} frames may wait (--queue)"
        raise RankSliceError(Mistake("--surge-queue", found, f"expected at most {queue}"))


def refuse_switching(plan: Plan, options: RunOptions, where: str) -> None:
    """Refuse the choice of a route where there is one.

    Raises:
        RankSliceError: there is one route, and an option chooses.
    """
    changed = [each for each in _SWITCHING if getattr(options, each) != getattr(USUAL, each)]
    if plan.surge is None and changed:
        name = changed[0].removesuffix("_s").replace("_", "-")
        expected = "build with --surge MAPPING for a second one"
        raise RankSliceError(Mistake(f"{where}: --{name}", "there is one route", expected))
