"""The links between boards and inside them, and where their figures are from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.overheads import WAKE_UP_S
from rankslice.framework.platform import Link, Platform

UNKNOWN_LINK = Link(bandwidth_mbps=float("inf"), latency_ms=0.0)
"""Between boards of a platform that describes no links."""


@dataclass(frozen=True, slots=True)
class LinkSpeeds:
    """The links of a platform."""

    platform: Platform
    wake_up_s: float = WAKE_UP_S
    """Between two ranks of one board, whatever the size: one reads the slots of the other."""

    def between(self, origin: str, target: str) -> Link:
        """Return the link from a board to another or to itself, by their names."""
        return self._found(origin, target)[0]

    def figures(
        self, pairs: Iterable[tuple[str, str]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bandwidths in bytes/s and latencies in s of pairs of boards, (pairs,) each."""
        links = [self.between(*pair) for pair in pairs]
        return (
            np.array([link.bandwidth_mbps * 1e6 / 8 for link in links]),
            np.array([link.latency_ms / 1e3 for link in links]),
        )

    def source(self, origin: str, target: str) -> str:
        """Return the source of the figures of :meth:`between`."""
        return self._found(origin, target)[1]

    def _found(self, origin: str, target: str) -> tuple[Link, str]:
        if origin == target:
            link = Link(bandwidth_mbps=float("inf"), latency_ms=1e3 * self.wake_up_s)
            return link, "shared memory, as measured on another machine"
        name = self.platform.name
        for number, (one, other, link) in enumerate(self.platform.links):
            if {one, other} == {origin, target}:
                return link, f"{name}: links.pairs[{number}]"
        if self.platform.default_link is not None:
            return self.platform.default_link, f"{name}: links.default"
        return UNKNOWN_LINK, f"{name} describes no such link: counted as nothing"
