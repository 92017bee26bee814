"""Source and sink of a job with two routes: frames take one of them at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..figures.rank_figures import SourceFigures
from ..sinks import Sink
from ..sources import Source
from ..sources.arrivals import Arrivals
from ..sources.switching import ROUTE_NAMES, USUAL, Change, Observation
from .slots import Ring
from .stages import ROOM, Entry, Input, SinkStage, SourceStage

UPDATE_PERIOD_S = 0.25
"""In a surge without arrivals."""
MAX_CHANGES = 10_000
"""That are kept: a stream may have no end."""


class Switching(Protocol):
    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        """Choose the route that frames should take, and say why; ``route`` is the present one."""


class RouteChoice:
    def __init__(self, switching: Switching) -> None:
        self._switching = switching
        self._begin_s: float | None = None
        """The first update, when the first timed frame arrives."""
        self.route = USUAL
        self.wanted = USUAL
        """The route that frames take as soon as nothing is inside."""
        self._reason = ""
        self.changes: list[Change] = []

    def update(self, seen: Observation, frame: int) -> None:
        if self._begin_s is None:
            self._begin_s = seen.now_s
        if self.wanted == self.route:
            self.wanted, self._reason = self._switching.decide(self.route, seen)
        if self.wanted != self.route and frame == seen.came_out:
            self.route = self.wanted
            name, since_s = ROUTE_NAMES[self.route], seen.now_s - self._begin_s
            if len(self.changes) < MAX_CHANGES:
                self.changes.append(Change(since_s, frame, name, seen.waiting, self._reason))


class RoutedSource(SourceStage):
    _counts_routes = True

    def __init__(
        self,
        source: Source,
        arrivals: Arrivals,
        entries: Sequence[Entry],
        credit: Input,
        switching: Switching,
        **more: Any,
    ) -> None:
        super().__init__(source, arrivals, entries, credit, **more)
        self._keeps_places = False
        self._entries = entries
        self.choice = RouteChoice(switching)
        self._counts = [0] * len(entries)

    @property
    def way(self) -> int:  # type: ignore[override]
        return self.choice.route

    def figures(self) -> SourceFigures:
        # If the stream ends where the next frame is read, the last change had no frame.
        taken = tuple(change for change in self.choice.changes if change.frame < self.frame)
        window, surge_window = (entry.window for entry in self._entries)
        measured = super().figures()
        return replace(measured, window=window, surge_window=surge_window, switches=taken)

    def is_ready(self) -> bool:
        if self._arrivals.is_exhausted():
            return True
        choice = self.choice
        seen = Observation(time.monotonic(), *self._arrivals.counts(), self._came_out)
        choice.update(seen, self.frame)
        entry = self._entries[choice.route]
        self._writes = entry.outputs
        # Nothing enters until the route can be changed.
        self._room = entry.window if choice.wanted == choice.route else 0
        return super().is_ready()

    def pause_s(self) -> float | None:
        pause_s = super().pause_s()
        if self.choice.route == USUAL or pause_s is None:
            return pause_s
        return min(pause_s, UPDATE_PERIOD_S)


class RoutedSink(SinkStage):
    def __init__(
        self,
        sinks: Sequence[Sink],
        exits: Sequence[Sequence[Input]],
        credit: Ring,
        window: int = 0,
    ) -> None:
        super().__init__(sinks, [part for inputs in exits for part in inputs], credit, window)
        self._keeps_places = False
        self._exits = exits

    def is_ready(self) -> bool:
        self._reads = self._find()
        (credit,) = self._outputs
        self.lacks = ROOM if self._reads and not credit.has_room() else ""
        return (bool(self._reads) and not self.lacks) or self._is_over()

    def _find(self) -> Sequence[Input]:
        """Find the inputs with the results of the next frame; nothing: on no route."""
        # Frames are on one route at a time: none can be there on two.
        for inputs in self._exits:
            if all(part.has_frame() for part in inputs):
                return inputs
        return ()

    def _is_over(self) -> bool:
        return all(part.has_ended() for part in self._inputs)
