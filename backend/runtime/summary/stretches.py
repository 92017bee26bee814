"""Which frames of a run took which route."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..sources.switching import ROUTE_NAMES

NORMAL, SURGE = ROUTE_NAMES


def stretches(switches: Sequence[Mapping[str, Any]], frames: int) -> list[tuple[int, int, str]]:
    """Return first frame, the one after the last, and route of frames that took the same one."""
    begins = [(0, NORMAL), *((each["frame"], each["route"]) for each in switches), (frames, NORMAL)]
    return [
        (begin, end, route)
        for (begin, route), (end, _) in itertools.pairwise(begins)
        if begin < end
    ]
