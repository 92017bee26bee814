"""What boards were like for a job: their modes, and samples, one a second."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.reading.records import Only
from rankslice.framework.wording import joined

MAX_SAMPLES = 3600
"""Of a board that are kept: of longer runs every second one, every fourth one, and so on."""


@dataclass(frozen=True, slots=True)
class BoardHistory:
    """A board's samples."""

    board: str
    times_ns: tuple[int, ...]
    """On the clock of the board that never goes back, as in its ranks' events."""
    series: dict[str, tuple[float, ...]]
    """By name: a value for each time; NaN where it was not told."""
    absent: tuple[str, ...]
    """Kinds of values that the board does not tell."""


def _have_ranges(series: dict[str, dict[str, float]]) -> bool:
    return all({*values} == {"min", "mean", "max"} for values in series.values())


@dataclass(frozen=True, slots=True)
class HardwareSummary:
    """What a board was like while frames went through its ranks."""

    board: str
    samples: int
    """Those in which a rank there had finished frames since the one before."""
    series: Annotated[dict[str, dict[str, float]], Only(_have_ranges, "min, mean and max of each")]
    """By name: ``min``, ``mean`` and ``max``. A counter's growth is their difference."""
    absent: tuple[str, ...]
    """Kinds of values that the board does not tell."""

    def of(self, quantity: str) -> dict[str, dict[str, float]]:
        """Return the series of one quantity, by part."""
        named = (name.partition(".") for name in self.series)
        return {part: self.series[quantity + dot + part] for q, dot, part in named if q == quantity}


_NO_VALUES = math.inf, 0.0, -math.inf, 0


@dataclass(slots=True)
class _Board:
    samples: list[Sample] = field(default_factory=list)
    every: int = 1
    seen: int = 0
    busy: int = 0
    spreads: dict[str, tuple[float, float, float, int]] = field(default_factory=dict)
    """By name: the least value, the sum, the greatest value, and how many there were."""
    absent: tuple[str, ...] = ()

    def add(self, sample: Sample) -> None:
        self.absent = sample.absent
        if self.seen % self.every == 0:
            self.samples.append(sample)
        self.seen += 1
        if len(self.samples) > MAX_SAMPLES:
            del self.samples[1::2]
            self.every *= 2
        if any(name.startswith("frames_per_s.") and value for name, value in sample.values.items()):
            self.busy += 1
            for name, value in sample.values.items():
                low, total, high, count = self.spreads.get(name, _NO_VALUES)
                self.spreads[name] = min(low, value), total + value, max(high, value), count + 1


class HardwareLog:
    """Takes samples as they come, in any thread; its memory does not grow with a long run."""

    def __init__(self, order: Iterable[str] = ()) -> None:
        self._places = {board: place for place, board in enumerate(dict.fromkeys(order))}
        self._boards: dict[str, _Board] = {}
        self._lock = threading.Lock()

    def add(self, board: str, sample: Sample) -> None:
        with self._lock:
            self._boards.setdefault(board, _Board()).add(sample)

    def histories(self) -> tuple[BoardHistory, ...]:
        with self._lock:
            return tuple(_history(name, board) for name, board in self._in_order())

    def summaries(self) -> tuple[HardwareSummary, ...]:
        """Summarise the samples by board, also those that are not kept."""
        with self._lock:
            return tuple(_summary(name, board) for name, board in self._in_order())

    def _in_order(self) -> list[tuple[str, _Board]]:
        last = len(self._places)
        return sorted(self._boards.items(), key=lambda item: self._places.get(item[0], last))


def _history(name: str, board: _Board) -> BoardHistory:
    samples = board.samples
    names = dict.fromkeys(key for sample in samples for key in sample.values)
    series = {key: tuple(sample.values.get(key, math.nan) for sample in samples) for key in names}
    return BoardHistory(name, tuple(sample.time_ns for sample in samples), series, board.absent)


def _summary(name: str, board: _Board) -> HardwareSummary:
    series = {
        key: {"min": low, "mean": total / count, "max": high}
        for key, (low, total, high, count) in board.spreads.items()
    }
    return HardwareSummary(name, board.busy, series, board.absent)


def mode_texts(mode: BoardMode) -> dict[str, str]:
    """Return what a board's mode says: its power mode, and what sets each clock, by its name."""
    texts = {"power mode": f"{mode.power} ({mode.power_number})"} if mode.power else {}
    for clock in mode.clocks:
        limits = ("?" if mhz is None else f"{mhz:g}" for mhz in (clock.min_mhz, clock.max_mhz))
        texts[clock.name] = f"{clock.governor or '?'} from {' to '.join(limits)} MHz"
    return texts


def mode_differences(modes: Mapping[str, Mapping[str, BoardMode]]) -> Iterator[str]:
    """Yield a clause for each board whose mode differs; ``modes``: by run, then by board."""
    for board in dict.fromkeys(board for boards in modes.values() for board in boards):
        texts = {run: mode_texts(of[board]) for run, of in modes.items() if board in of}
        names = dict.fromkeys(name for text in texts.values() for name in text)
        unlike = [name for name in names if len({text.get(name) for text in texts.values()}) > 1]
        if unlike:
            sides = []
            for run, text in texts.items():
                own = ", ".join(f"{name} {text.get(name, 'unknown')}" for name in unlike)
                sides.append(f"with {own} in {run}")
            yield f"board {board} ran {joined(sides)}"
