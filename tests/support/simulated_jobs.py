"""Jobs for the simulator: random ones, the same for the same seed, and parts of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from line_graphs import line_graph
from numpy.typing import NDArray
from placements import placements
from plans import planned
from problems import board

from rankslice.backend.runtime.figures.events import COMPUTE
from rankslice.backend.runtime.job import Rank
from rankslice.exploration.problem.runtime_costs import LinkSpeeds, Overheads
from rankslice.exploration.simulator.simulation import Simulation
from rankslice.exploration.simulator.simulator import Arrivals, at_rate, jittered, simulate
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Link, Platform

FREE = Link(float("inf"), 0.0)


def links(*names: str, link: Link = FREE, wake_up_s: float = 0.0) -> LinkSpeeds:
    """Return the links of some boards; by default of one that is called ``board``."""
    boards = tuple(map(board, names or ("board",)))
    return LinkSpeeds(Platform("boards.yaml", boards, link), wake_up_s)


def took(*seconds: float) -> list[NDArray[np.float64]]:
    """Return the times of segments that take the same in each frame."""
    return [np.array([each]) for each in seconds]


class Step(NamedTuple):
    """One run of a segment; frames count as in its route."""

    rank: int
    segment: int
    frame: int
    begin_s: float
    end_s: float


def steps_of(found: Simulation) -> list[Step]:
    """Return the steps that were traced, in the order in which they began."""
    steps = [
        Step(rank.rank, int(e["number"]), int(e["frame"]), 1e-9 * e["begin_ns"], 1e-9 * e["end_ns"])
        for rank in found.trace.ranks
        for e in rank.of(COMPUTE)
    ]
    return sorted(steps, key=lambda step: step.begin_s)


def simulated_job(seed: int, *, in_turn: bool = False) -> Simulation:
    """Return what a random job shows: skips, several boards, shared cores, windows and clocks.

    ``in_turn``: some of its ranks take turns.
    """
    draw = np.random.default_rng(seed)
    plan = _plan(draw, in_turn=in_turn)
    names = dict.fromkeys(rank.board for rank in plan.ranks)
    link = Link(float(draw.choice([0.001, 0.01, 1000.0])), float(draw.choice([0.0, 1.0, 5.0])))
    wake_up_s = float(draw.choice([0.0, 1e-4, 2e-3]))
    variation = float(draw.choice([0.0, 0.4]))
    times = [jittered(float(draw.uniform(0.001, 0.02)), variation, 30, draw) for _ in plan.segments]
    between = links(*names, link=link, wake_up_s=wake_up_s)
    return simulate(plan, times, between, **_options(draw, plan))


def _plan(draw: np.random.Generator, *, in_turn: bool) -> Plan:
    count = int(draw.integers(2, 9))
    lines = []
    for layer in range(count):
        earlier = draw.integers(0, layer + 1, int(draw.integers(0, 3))).tolist()
        reads = " ".join(f"t{n}" for n in sorted({layer, *earlier}))
        lines.append(f"l{layer}: {reads} -> t{layer + 1}")
    outputs = " ".join(f"t{n}" for n in sorted({count, int(draw.integers(1, count + 1))}))
    drawn = draw.integers(0, int(draw.integers(1, 6)), count).tolist()
    numbers = list(dict.fromkeys(drawn))
    ranks = {f"l{n}": numbers.index(rank) for n, rank in enumerate(drawn)}
    weights = {
        entry: draw.integers(1, 4, int(draw.integers(1, 4))).tolist()
        for entry in (range(len(numbers)) if in_turn else ())
    }
    boards = int(draw.integers(1, 4))
    count = sum(len(weights.get(entry, (1,))) for entry in range(len(numbers)))
    keys = [f"b{rank % boards}_cpu{rank}" for rank in range(count)]
    found = tuple(_varied(draw, rank) for rank in placements(*keys))
    source = int(draw.integers(len(found))) if draw.random() < 0.3 else None
    graph = line_graph("\n".join(lines), outputs, "t0")
    return planned(graph, ranks, found, source, weights)


def _varied(draw: np.random.Generator, rank: Rank) -> Rank:
    kind = draw.choice(["core", "cores", "shared", "gpu", "null"], p=[0.4, 0.1, 0.3, 0.1, 0.1])
    changes: dict[str, dict[str, Any]] = {
        "core": {},
        "cores": {"cores": (rank.rank, 90 + rank.rank)},
        "shared": {"cores": (99,)},
        "gpu": {"accelerator": "gpu", "cores": (99,)},
        "null": {"engine": "null"},
    }
    return replace(rank, **changes[str(kind)])


def _options(draw: np.random.Generator, plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {"frames": 30, "traced": 2}
    if draw.random() < 0.3:
        arriving = at_rate(30, float(draw.uniform(20, 300)))
        found["arrivals"] = Arrivals(arriving, int(draw.integers(1, 6)))
    if draw.random() < 0.5:
        found["window"] = int(draw.integers(1, 8))
    if draw.random() < 0.7:
        found["overheads"] = Overheads(
            frame_s=1e-3,
            message_s=2e-4,
            source="given",
            slice_s=3e-4,
            network_s_per_byte=1e-6,
            token_s=1e-4,
        )
    return found
