"""The best contiguous assignment of layers to devices, proven."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from rankslice.exploration.planner.branch_and_bound import Costs
from rankslice.exploration.planner.chain import (
    Chain,
    LayerChain,
    PlacedSlice,
    raise_faults,
)
from rankslice.exploration.planner.infeasible import why_infeasible
from rankslice.exploration.planner.make_chain import make_chain
from rankslice.exploration.planner.solver import SAME, Solution, cheapest, fastest
from rankslice.framework.errors import Mistake
from rankslice.framework.wording import joined, quoted

Objective = Literal["throughput", "latency", "energy"]


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """What one device does, or several that take turns."""

    devices: tuple[str, ...]
    """Their names, in the order of the list of devices: each takes the next frame."""
    indices: tuple[int, ...]
    first: int
    last: int
    """Last layer, that one included."""
    compute_s: float
    """Time of these layers for one frame."""
    send_s: float
    """Time of the message to the next slice; 0 for the last one. If it depends on whose turn it
    is, the longest."""
    load_s: float
    """For how long per frame these messages occupy the busiest device, or the cable of a board.
    Without turns this is ``send_s``."""
    memory_bytes: float
    """What it takes of the board of each device."""

    @property
    def device(self) -> str:
        return self.devices[0]

    @property
    def index(self) -> int:
        return self.indices[0]

    @property
    def turns(self) -> int:
        return len(self.devices)

    @property
    def time_s(self) -> float:
        """The longer one of computing and sending, per frame: both happen at once."""
        return max(self.compute_s / self.turns, self.load_s)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The best pipeline, and what it is like."""

    slices: tuple[PlannedSlice, ...]
    bottleneck_s: float
    """Time per frame of the slowest slice or message: a frame comes out each time it has passed."""
    latency_s: float
    """Time of all slices and messages of one frame, in a pipeline that is otherwise empty."""
    energy_j: float | None
    """For one frame, of all boards in use, at the rate of the floor, or without a floor as fast as
    it goes; None if the power of a device in use is not known."""
    objective: Objective
    proven: bool
    """Whether no contiguous pipeline is better."""
    bound_s: float | None
    """No contiguous pipeline has a smaller bottleneck, or latency if that is the objective; equal
    to it if that is proven. None if the objective is energy."""
    bound_j: float | None
    """The same for energy; None for other objectives."""

    @property
    def throughput_fps(self) -> float:
        """Frames per second; infinite if nothing takes any time."""
        return 1 / self.bottleneck_s if self.bottleneck_s else math.inf


def optimal_pipeline(
    layers: LayerChain,
    *,
    objective: Objective = "throughput",
    throughput_floor_fps: float = 0.0,
    most_turns: int = 1,
    most_steps: int = 100_000,
) -> Pipeline:
    """Return the best way to cut a chain of layers into slices, each on a device of its own.

    Slices are contiguous, and devices may be left unused. The bottleneck is the slowest slice or
    message: computing and sending overlap. The proof stands in ``docs/exploration.md``.

    With ``most_turns`` a slice may get several devices of one kind, whose boards have equally much
    memory. They take the frames in turn, so each computes one frame of so many; each needs the
    memory of the slice.

    Args:
        layers: their times and sizes, the devices, and the links between these.
        objective: ``throughput``: smallest bottleneck. ``latency``: smallest sum of slices and
            messages. ``energy``: fewest joules per frame at the floor's rate.
        throughput_floor_fps: frames per second that the pipeline has to reach.
        most_turns: how many devices may take turns on a slice.
        most_steps: how long to search where the first walk through the devices does not arrive:
            boards whose accelerators fill one memory, or more than about ten different boards.
            The result says whether it is proven.

    Raises:
        ArgumentError: (a ``ValueError``) the arguments make no sense.
        NoPlanError: no pipeline keeps the limits; ``limit`` says which one is in the way.
    """
    chain = make_chain(layers, counts_power=objective == "energy", most_turns=most_turns)
    raise_faults(_option_mistakes(chain, objective, throughput_floor_fps))
    period = 1 / throughput_floor_fps if throughput_floor_fps else math.inf
    limit = period * (1 + SAME)  # a floor of 1 / bottleneck_s is rounded
    best = _best(chain, objective, period, limit, most_steps)
    if not best.plan or chain.bottleneck_s(best.plan) > limit * (1 + SAME):
        raise why_infeasible(chain, best, period, most_steps)
    return _pipeline(chain, best, objective, period)


def _option_mistakes(chain: Chain, objective: str, floor: float) -> Iterator[Mistake]:
    if chain.most_turns < 1:
        yield Mistake("most_turns", f"is {chain.most_turns}", "expected 1 or more")
    if objective not in get_args(Objective):
        expected = f"expected {joined(get_args(Objective), 'or')}"
        yield Mistake("objective", f"is {quoted(str(objective))}", expected)
    if not 0 <= floor < math.inf:
        found = f"is {floor}"
        yield Mistake(
            "throughput_floor_fps", found, "expected no negative number, and a finite one"
        )
    if objective != "energy":
        return
    for index, device in enumerate(chain.devices):
        if device.busy_w is None:
            yield Mistake(f"devices[{index}].busy_w", "is not given", "energy needs it")
    if not floor and any(device.idle_w for device in chain.devices):
        expected = "energy needs it: how long a board is idle for each frame depends on the rate"
        yield Mistake("throughput_floor_fps", "is not given", expected)


def _best(
    chain: Chain, objective: Objective, period: float, limit: float, most_steps: int
) -> Solution:
    if objective == "throughput":
        return fastest(chain, most_steps)
    is_energy = objective == "energy"
    weights = tuple((device.busy_w or 0.0) if is_energy else 1.0 for device in chain.devices)
    idle = tuple(
        _idle_j(chain, board, period) if is_energy else 0.0 for board in range(len(chain.boards))
    )
    message = 0.0 if is_energy else 1.0
    return cheapest(chain, Costs(chain, weights, message, limit, idle), most_steps)


def _idle_j(chain: Chain, board: int, period: float) -> float:
    idle = chain.devices[chain.boards[board][0]].idle_w
    return idle * period if idle else 0.0


def _pipeline(chain: Chain, best: Solution, objective: Objective, period: float) -> Pipeline:
    slices = tuple(_slice(chain, best.plan, index) for index in range(len(best.plan)))
    bottleneck = max(part.time_s for part in slices)
    latency = math.fsum(part.compute_s + part.send_s for part in slices)
    energy = _energy_j(chain, slices, bottleneck if math.isinf(period) else period)
    value = {"latency": latency, "energy": energy or 0.0}.get(objective, bottleneck)
    proven = best.proven or value <= best.bound * (1 + SAME)
    bound = value if proven else best.bound
    is_energy = objective == "energy"
    return Pipeline(
        slices,
        bottleneck,
        latency,
        energy,
        objective,
        proven,
        None if is_energy else bound,
        bound if is_energy else None,
    )


def _slice(chain: Chain, plan: tuple[PlacedSlice, ...], index: int) -> PlannedSlice:
    placed, behind = plan[index], chain.messages_behind(plan, index)
    return PlannedSlice(
        tuple(chain.devices[device].name for device in placed.devices),
        placed.devices,
        placed.first,
        placed.end - 1,
        chain.slice_s(placed),
        behind.longest_s,
        behind.load_s,
        chain.slice_bytes(placed),
    )


def _energy_j(chain: Chain, slices: tuple[PlannedSlice, ...], period: float) -> float | None:
    busy = []
    for part in slices:
        for index in part.indices:
            power = chain.devices[index].busy_w
            if power is None:
                return None
            busy.append(power * part.compute_s / part.turns)
    boards = {chain.board_of[index] for part in slices for index in part.indices}
    return math.fsum([*busy, *(_idle_j(chain, board, period) for board in boards)])
