"""Arithmetic of boxes: parts of tensors, by axis where they begin and end."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.graph import Box


def whole(shape: Sequence[int]) -> Box:
    return tuple((0, size) for size in shape)


def sizes(box: Box) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in box)


def with_ends(box: Box, axis: int, ends: tuple[int, int]) -> Box:
    return (*box[:axis], ends, *box[axis + 1 :])


def hull(one: Box, other: Box) -> Box:
    """Return the smallest box with both."""
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def intersection(one: Box, other: Box) -> Box | None:
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return shared if all(begin < end for begin, end in shared) else None


def contains(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


def within(box: Box, outer: Box) -> Box:
    """Return the place of a box, counted from where another one begins."""
    return tuple((a - start, b - start) for (a, b), (start, _) in zip(box, outer, strict=True))


def text_of(box: Box, shape: Sequence[int]) -> str:
    """Return a box as an index of numpy: ``[:,:,0:112]``."""
    whole_axes = zip(box, shape, strict=True)
    return f"[{','.join(':' if e == (0, n) else f'{e[0]}:{e[1]}' for e, n in whole_axes)}]"
