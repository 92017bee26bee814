"""Lanes for a drawing of a graph: a row per layer, and a vertical line per tensor."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

ROW = 22
"""Height of a row; this and all other lengths are pixels."""


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
    """Take a lane from the free ones: the wanted one, or the leftmost."""
    if wanted is None:
        return heapq.heappop(free)
    free.remove(wanted)
    heapq.heapify(free)
    return wanted


def bend(x: int, to_x: int, to_y: int) -> str:
    """Return a curve from one row's middle to the next's."""
    turn = to_y - ROW // 2
    return f"C{x} {turn} {to_x} {turn} {to_x} {to_y}"


def stem(x: int, y: int, lane: int) -> str:
    """Return the beginning of a line: from a dot to its lane."""
    return f"M{x} {y}{'' if x == lane else bend(x, lane, y + ROW)}"


def tensor_path(x: int, y: int, lane: int, readers: Sequence[tuple[int, int]]) -> str:
    """Return the line of a tensor from the dot that makes it, along its lane, to all readers'."""
    parts = []
    lowest = 0
    for to_x, to_y in readers:
        if x != lane != to_x and to_y - y < 2 * ROW:
            parts.append(f"M{x} {y}{bend(x, to_x, to_y)}")
            continue
        leaves = to_y if to_x == lane else to_y - ROW
        if to_x != lane:
            parts.append(f"M{lane} {leaves}{bend(lane, to_x, to_y)}")
        lowest = max(lowest, leaves)
    return "".join([*([f"{stem(x, y, lane)}V{lowest}"] if lowest else []), *parts])
