"""Which sizes of a tensor are open, and how large they can be: from what it has in several trials.

Nothing tells how a size depends on those of the inputs. So shapes are computed for the largest
inputs, and for some smaller ones. A size that the file leaves open counts as fixed only if it is
the same in all trials.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankslice.frontend.formats.tflite.rules import Shape
from rankslice.frontend.formats.tflite.wire import Table

_PARTS = ((1, 2), (1, 3), (1, 8))
_MIN_TRIALS = 2
"""Trials with smaller sizes that have to agree before a size counts as fixed."""

OPEN = "?"
"""Name of an open size that has none."""

Symbols: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """How large open sizes are in a trial. Sizes with equal bounds are equal."""

    part: tuple[int, int] = (1, 1)
    """Of the bound, as a fraction; rounded up."""
    less: int = 0
    axis: int | None = None
    """The only dimension that is smaller; ``None``: all are."""

    def size(self, bound: int, axis: int) -> int:
        if self.axis not in (None, axis):
            return bound
        part, of = self.part
        return max(0, -(-bound * part // of) - self.less)

    def shape(self, bounds: Shape, symbols: Symbols) -> Shape:
        sizes = zip(bounds, symbols or ("",) * len(bounds), strict=True)
        return tuple(self.size(b, axis) if s else b for axis, (b, s) in enumerate(sizes))


def trials(axes: Collection[int]) -> tuple[Trial, ...]:
    """Return the trials, that of the bounds first, that without any elements last."""
    alone = [Trial((1, 2), axis=axis) for axis in sorted(axes)] if len(axes) > 1 else []
    return (
        Trial(),
        Trial(less=1),
        *map(Trial, _PARTS),
        *alone,
        Trial((0, 1)),
    )


def bound_of(
    tensor: Table, shapes: Sequence[Shape | None], *, decided_by_data: bool
) -> tuple[Shape, Symbols] | None:
    """Return a tensor's largest shape, and its open sizes; ``None`` if it is not known.

    Args:
        shapes: by trial, as far as known.
        decided_by_data: whether sizes depend on values; these may be zero.
    """
    largest, *others = shapes
    if largest is None:
        return None
    known = [shape for shape in others if shape is not None and len(shape) == len(largest)]
    is_sure = len(known) >= _MIN_TRIALS and not (decided_by_data and shapes[-1] is None)
    signature = tensor.numbers("shape_signature") or largest
    sizes = list(zip(largest, *known, strict=True))
    symbols = tuple(
        OPEN if len(set(found)) > 1 or (declared == -1 and not is_sure) else ""
        for declared, found in zip(signature, sizes, strict=True)
    )
    return tuple(map(max, sizes)), symbols if any(symbols) else ()
