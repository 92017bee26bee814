"""Plans: which device computes which span; what they cost, and what speaks against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankslice.exploration.planner.chain import Chain


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """One slice of a plan."""

    device: int
    first: int
    """Cut before its first layer."""
    end: int
    """Cut behind its last layer."""


def bottleneck_s(chain: Chain, plan: tuple[PlacedSlice, ...]) -> float:
    """Return the time of the slowest slice or message of a plan; infinite if it cannot be."""
    if exceeds_memory(chain, plan):
        return math.inf
    slices = (chain.slice_s(part.device, part.first, part.end) for part in plan)
    messages = (message_s(chain, plan, index) for index in range(len(plan)))
    return max(*slices, *messages)


def exceeds_memory(chain: Chain, plan: tuple[PlacedSlice, ...]) -> bool:
    """Return whether some board has too little memory for its slices."""
    held = [0.0] * len(chain.boards)
    for part in plan:
        board = chain.board_of[part.device]
        held[board] += chain.slice_bytes(part.device, part.first, part.end)
    return any(one > most for one, most in zip(held, chain.capacity_bytes, strict=True))


def message_s(chain: Chain, plan: tuple[PlacedSlice, ...], index: int) -> float:
    """Return the time of the message behind a slice of a plan; 0 behind the last one."""
    if index + 1 == len(plan):
        return 0.0
    one, other = plan[index], plan[index + 1]
    return float(chain.link_s[chain.link_of[one.device, other.device], one.end])
