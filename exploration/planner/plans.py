"""Plans: which device computes which span; what they cost, and what speaks against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankslice.exploration.planner.chain import Chain

__all__ = ["Placed", "bottleneck_s", "message_s", "overfull"]


@dataclass(frozen=True, slots=True)
class Placed:
    """One stage of a plan."""

    device: int
    first: int
    """Cut before its first layer."""
    end: int
    """Cut behind its last layer."""


def bottleneck_s(chain: Chain, plan: tuple[Placed, ...]) -> float:
    """Return the time of the slowest stage or message of a plan; infinite if it cannot be."""
    if overfull(chain, plan):
        return math.inf
    stages = (chain.stage_s(stage.device, stage.first, stage.end) for stage in plan)
    messages = (message_s(chain, plan, index) for index in range(len(plan)))
    return max(*stages, *messages)


def overfull(chain: Chain, plan: tuple[Placed, ...]) -> bool:
    """Return whether some board has too little memory for its stages."""
    held = [0.0] * len(chain.boards)
    for stage in plan:
        board = chain.board_of[stage.device]
        held[board] += chain.stage_bytes(stage.device, stage.first, stage.end)
    return any(one > most for one, most in zip(held, chain.capacity_bytes, strict=True))


def message_s(chain: Chain, plan: tuple[Placed, ...], index: int) -> float:
    """Return the time of the message behind a stage of a plan; 0 behind the last one."""
    if index + 1 == len(plan):
        return 0.0
    one, other = plan[index], plan[index + 1]
    return float(chain.link_s[chain.link_of[one.device, other.device], one.end])
