"""Exploration problems for tests: boards of two cores and a GPU, layers as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from line_graphs import line_graph
from strategies import random_graphs

from rankslice.exploration.problem.devices import kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.exploration.problem.runtime_costs import Overheads
from rankslice.framework.graph import Graph
from rankslice.framework.platform import Accelerator, Board, Link, Platform

GIGABIT = Link(bandwidth_mbps=1000, latency_ms=0.2)
OVERHEADS = Overheads(frame_s=1e-3, message_s=2e-3, source="given", token_s=5e-4)

CHAIN = line_graph("a: x -> t\nb: t -> u\nc: u -> y", outputs="y")


def board(name: str, *, gpus: int = 0, **more: float | None) -> Board:
    described = {"memory_mb": 100.0, "idle_w": 1.0, "busy_w": 3.0, **more}
    return Board(name, name, cores=(0, 1), gpus=(Accelerator("litert"),) * gpus, **described)  # type: ignore[arg-type]


def platform(*boards: Board, link: Link | None = GIGABIT) -> Platform:
    return Platform("boards.yaml", boards or (board("edge01"), board("edge02")), link)


def problem(
    graph: Graph = CHAIN,
    boards: Platform | None = None,
    times_s: Sequence[Sequence[float]] = ((1.0, 2.0, 3.0),),
    keys: Sequence[str] | None = None,
    **more: object,
) -> Problem:
    """Return a problem; ``more`` is what :func:`make_problem` takes, and fields of the problem."""
    boards = boards or platform()
    devices = None if keys is None else kinds_and_devices(keys, boards)
    names = [
        each for each in ("spans_s", "overheads", "times_source", "frame_bytes") if each in more
    ]
    taken: Any = {name: more.pop(name) for name in names}
    found = make_problem(graph, boards, np.array(times_s), accelerators=devices, **taken)
    measured: Any = more.pop("idle_w", {})
    told = tuple(
        replace(each, idle_w=measured[each.name], is_idle_measured=True)
        if each.name in measured
        else each
        for each in found.boards
    )
    return replace(found, boards=told, **more)  # type: ignore[arg-type]


@st.composite
def assigned_problems(draw: st.DrawFn) -> tuple[Problem, np.ndarray]:
    """Draw problems of two boards with a GPU each, and some assignments."""
    graph = draw(random_graphs())
    layers = len(explored_layers(graph))
    times = st.floats(1e-4, 1e-2)
    rows = draw(st.lists(st.lists(times, min_size=layers, max_size=layers), min_size=2, max_size=2))
    boards = platform(board("edge01", gpus=1), board("edge02", gpus=1))
    overheads = draw(
        st.sampled_from([Overheads(), Overheads(1e-4, 3e-5, "given", 5e-5, 2e-6, 1e-5)])
    )
    made = problem(graph, boards, rows, overheads=overheads)
    one = st.lists(st.integers(0, 3), min_size=layers, max_size=layers)
    return made, np.array(draw(st.lists(one, min_size=1, max_size=4)))
