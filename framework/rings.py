"""How many slots each tensor of a plan gets on each rank, and so how much memory frames take.

The runtime on the boards allocates as many (``backend/runtime/pipeline/wiring.py``, which imports
nothing of ours); tests compare the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.plan import Plan

__all__ = ["RingSize", "rings_of", "slots"]

Levels = TypeVar("Levels", int, NDArray[np.int64])


def slots(written: Levels, last_read: Levels) -> Levels:
    """Return how many slots a tensor needs, unless the window is smaller.

    While every segment works, one at level L is busy with the frame that came in L steps ago. So
    a tensor has to be kept from the step in which it is written to that of its last reader.

    Args:
        written: level of what writes it: of a segment, 0 of the source, and for a tensor that was
            received one more than the level of the segment that made it.
        last_read: highest level of what reads it: of segments, of the sink, and for a tensor that
            is sent one more than ``written``.
    """
    return last_read - written + 1


@dataclass(frozen=True, slots=True)
class RingSize:
    """The slots of one tensor on one rank."""

    rank: int
    tensor: str
    slots: int
    slot_bytes: int

    @property
    def nbytes(self) -> int:
        """Size of all its slots."""
        return self.slots * self.slot_bytes


def rings_of(plan: Plan, window: int | None = None) -> tuple[RingSize, ...]:
    """Return the slots that the ranks of a plan allocate for tensors.

    Args:
        plan: segments with their levels, and channels.
        window: most frames inside, which no tensor has more slots than; the plan's by default.
    """
    most = plan.window if window is None else window
    made = dict.fromkeys(plan.model.inputs, (plan.source, 0))
    for segment in plan.segments:
        made |= dict.fromkeys(segment.outputs, (segment.rank, segment.level))
    written = {(rank, tensor): level for tensor, (rank, level) in made.items()}
    written |= {(c.destination, c.tensor): made[c.tensor][1] + 1 for c in plan.channels}
    last: dict[tuple[int, str], int] = defaultdict(int)
    for rank, tensor, level in _readings(plan, {name: level for name, (_, level) in made.items()}):
        last[rank, tensor] = max(last[rank, tensor], level)
    sizes = {tensor.name: tensor.nbytes or 0 for tensor in plan.tensors}
    return tuple(
        RingSize(*ring, min(most, slots(level, max(last[ring], level))), sizes[ring[1]])
        for ring, level in written.items()
    )


def _readings(plan: Plan, levels: dict[str, int]) -> Iterator[tuple[int, str, int]]:
    """Yield who reads what at which level: rank, tensor, level."""
    for segment in plan.segments:
        yield from ((segment.rank, name, segment.level) for name in segment.inputs)
    for channel in plan.channels:
        yield channel.source, channel.tensor, levels[channel.tensor] + 1
    yield from ((plan.sink, name, plan.path_length + 1) for name in plan.model.outputs)
