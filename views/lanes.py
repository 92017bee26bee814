"""Lanes for a drawing of a graph: a row per layer, and a vertical line per tensor."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from rankslice.views.terminal import shortened

ROW = 22
"""Height of a row; this and all other lengths are pixels."""
_LANE, _NARROWEST_LANE, _ALL_LANES = 14, 5, 360
_LETTER = 7.25
"""Width of a letter at 12 pixels, in the widest of the usual monospaced fonts."""


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in one row: what it reads and what it makes, by the tensors' names."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which lane each row's dot and each tensor's line is in, numbered from the left."""

    rows: tuple[int, ...]
    tensors: dict[str, int]
    """Those that some row reads."""
    count: int

    @property
    def lane(self) -> int:
        """Width of one lane: the narrower, the more there are."""
        return max(_NARROWEST_LANE, min(_LANE, _ALL_LANES // max(1, self.count)))

    @property
    def width(self) -> int:
        return max(1, self.count) * self.lane


def assign_lanes(rows: Sequence[Row]) -> Lanes:
    """Return lanes such that no two lines share one at the same height.

    A row's dot is in the lane of a tensor that it is the last to read, so a chain of layers
    is a straight line; failing that, it is in the leftmost free lane. Its first result goes on
    from there.
    """
    last = {name: index for index, row in enumerate(rows) for name in row.reads}
    free: list[int] = []
    count = 0
    tensors: dict[str, int] = {}
    dots = []
    for index, row in enumerate(rows):
        ending = sorted({tensors[name] for name in row.reads if last[name] == index})
        for lane in ending:
            heapq.heappush(free, lane)
        lasting = [name for name in row.makes if name in last]
        own: list[int] = []
        for _ in range(max(1, len(lasting))):
            if not free:
                heapq.heappush(free, count)
                count += 1
            own.append(_taken(free, ending[0] if ending and not own else None))
        dots.append(own[0])
        tensors |= dict(zip(lasting, own, strict=False))
        if not lasting:
            heapq.heappush(free, own[0])
    return Lanes(tuple(dots), tensors, count)


def _taken(free: list[int], wanted: int | None) -> int:
    if wanted is None:
        return heapq.heappop(free)
    free.remove(wanted)
    heapq.heapify(free)
    return wanted


def text_width(text: str) -> int:
    return int(cell_len(text) * _LETTER)


def column_width(texts: Iterable[str], most: int, least: int = 8) -> int:
    """Return the width of a column of texts, shortened to ``most`` letters, and of its margin."""
    longest = max((cell_len(shortened(text, most)) for text in texts), default=0)
    return int(max(longest, least) * _LETTER) + 16


def bend(x: int, to_x: int, to_y: int) -> str:
    """Return a curve from one row's middle to the next's."""
    turn = to_y - ROW // 2
    return f"C{x} {turn} {to_x} {turn} {to_x} {to_y}"


def stem(x: int, y: int, lane: int) -> str:
    """Return the beginning of a line: from a dot to its lane."""
    return f"M{x} {y}{'' if x == lane else bend(x, lane, y + ROW)}"
