"""Which route frames take, if a job has two: the options of ``run`` and ``simulate``."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Annotated

from typer import Option

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan


class Switch(str, Enum):
    """Which route frames take."""

    auto = "auto"
    normal = "normal"
    surge = "surge"


SwitchTo = Annotated[
    Switch,
    Option(
        help="For a build with --surge: route of the frames; auto: the surge route while frames"
        " arrive faster than the normal one can handle."
    ),
]
NormalFps = Annotated[
    float | None,
    Option(
        min=1e-3,
        max=1e9,
        help="Frame rate that the normal route can handle (default: measured while frames wait).",
    ),
]
SurgeQueue = Annotated[
    int | None,
    Option(
        min=2,
        help="Number of waiting frames that starts a surge (default: 8 or 2 x window, at most"
        " half of --queue).",
    ),
]
SurgeAbove = Annotated[
    float,
    Option(
        min=0.01,
        max=10,
        help="A surge starts if the arrival rate exceeds this share of the normal route's rate.",
    ),
]
NormalBelow = Annotated[
    float,
    Option(
        min=0.01,
        max=10,
        help="A surge ends if the arrival rate stays below this share"
        " of the normal route's rate and few frames wait.",
    ),
]
NormalAfter = Annotated[
    float, Option(min=0.01, max=1e6, help="Seconds for which both must hold before a surge ends.")
]

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
