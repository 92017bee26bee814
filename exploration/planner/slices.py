"""Plans: which devices compute which span; what they cost, and what speaks against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import Chain, Floats


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """One slice of a plan."""

    devices: tuple[int, ...]
    """Of one type. Several take turns, frame by frame, in this order: ascending."""
    first: int
    """Cut before its first layer."""
    end: int
    """Cut behind its last layer."""

    @property
    def turns(self) -> int:
        """How many devices take turns: each gets one frame of so many."""
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages at one cut."""

    longest_s: float
    load_s: float
    """For how long per frame the busiest device, or cable of a board, sends or receives."""


_NO_MESSAGES = Messages(0.0, 0.0)


def bottleneck_s(chain: Chain, plan: tuple[PlacedSlice, ...]) -> float:
    """Return how long the busiest device or cable is busy per frame; infinite if it cannot be."""
    types = ({chain.type_of[device] for device in part.devices} for part in plan)
    if exceeds_memory(chain, plan) or any(len(one) > 1 for one in types):
        return math.inf
    slices = (slice_s(chain, part) / part.turns for part in plan)
    messages = (messages_behind(chain, plan, index).load_s for index in range(len(plan)))
    return max(*slices, *messages)


def slice_s(chain: Chain, part: PlacedSlice) -> float:
    return chain.slice_s(part.devices[0], part.first, part.end)


def exceeds_memory(chain: Chain, plan: tuple[PlacedSlice, ...]) -> bool:
    held = [0.0] * len(chain.boards)
    for part in plan:
        for device in part.devices:
            size = chain.slice_bytes(device, part.first, part.end)
            held[chain.board_of[device]] += size
    return any(one > most for one, most in zip(held, chain.capacity_bytes, strict=True))


def messages_behind(chain: Chain, plan: tuple[PlacedSlice, ...], index: int) -> Messages:
    """Return the messages behind a slice of a plan; behind the last one there are none."""
    if index + 1 == len(plan):
        return _NO_MESSAGES
    one, other = plan[index], plan[index + 1]
    return messages(chain, one.devices, other.devices, one.end)


def messages(
    chain: Chain, senders: tuple[int, ...], receivers: tuple[int, ...], cut: int
) -> Messages:
    """Return the messages at a cut between devices that take turns, and others.

    Each frame goes from the one that has it to the one whose turn it is. What leaves a board over
    its cable adds up, and what enters it.
    """
    if len(senders) == len(receivers) == 1:
        time = float(chain.link_s[chain.link_of[senders[0], receivers[0]], cut])
        return Messages(time, time)
    frames = np.arange(math.lcm(len(senders), len(receivers)))
    sender = np.array(senders)[frames % len(senders)]
    receiver = np.array(receivers)[frames % len(receivers)]
    times = chain.link_s[chain.link_of[sender, receiver], cut]
    boards = np.array(chain.board_of)
    across = np.where(boards[sender] == boards[receiver], 0.0, times)
    busiest = max(
        _busiest(sender, times),
        _busiest(receiver, times),
        _busiest(boards[sender], across),
        _busiest(boards[receiver], across),
    )
    return Messages(float(times.max()), busiest / frames.size)


def _busiest(which: NDArray[np.intp], times: Floats) -> float:
    return float(np.bincount(which, times).max())
