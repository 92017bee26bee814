"""Which route frames take, if a job has two: the options of ``run`` and ``simulate``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from typer import Option


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
