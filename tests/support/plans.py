"""Plans without files: AutoDiCE's example, and random ones."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from hypothesis import strategies as st
from line_graphs import line_graph, opened
from placements import many_placements, placements
from strategies import mapped_graphs

from rankslice.backend.codegen import render_driver
from rankslice.backend.runtime.job import Job, Rank
from rankslice.backend.runtime.pipeline.wiring import NO_PAIRS, Pairs, Wiring, wire_all
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Placements
from rankslice.framework.plan import ModelInfo, Plan
from rankslice.framework.reading.read_driver import read_driver
from rankslice.framework.weighted_turns import by_weights
from rankslice.frontend.partition.partition import in_turns, partition
from rankslice.frontend.plan.make_plan import make_plan
from rankslice.frontend.plan.surge_route import join_ranks, with_surge

FIGURE_2 = line_graph(
    """MaxPool1: input -> Buff1
       Conv1: Buff1 -> Buff3
       FC1: Buff1 -> Buff2
       Add1: Buff2 Buff3 -> Buff4
       Relu1: Buff4 -> output""",
    inputs="input",
    outputs="output",
)
"""The example of AutoDiCE's Figure 2; its tensors are named as the figure's buffers."""

FIGURE_2_RANKS = {"MaxPool1": 0, "Add1": 0, "FC1": 1, "Conv1": 2, "Relu1": 2}
FIGURE_2_PLACEMENTS = placements("edge01_arm123", "edge01_gpu", "edge04_arm45")


def planned(
    graph: Graph,
    ranks: dict[str, int],
    places: tuple[Rank, ...] = (),
    source_rank: int | None = None,
    weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a graph; unless told otherwise, the ranks are cores of one board.

    ``weights``: by number in ``ranks``, of the ranks that take turns in its place; each other
    number is one rank.
    """
    model = ModelInfo(
        name=graph.name,
        sha256="0" * 64,
        format=graph.format,
    )
    entries = range(max(ranks.values()) + 1)
    turns = [by_weights(weights.get(entry, (1,))) for entry in entries]
    numbers = itertools.count()
    numbered = [[next(numbers) for _ in each] for each in turns]
    found = places or many_placements(sum(map(len, turns)))
    places = tuple(
        replace(place, turns=each)
        for place, each in zip(found, itertools.chain(*turns), strict=True)
    )
    cut = in_turns(partition(graph, ranks), numbered)
    return make_plan(model, cut, places, source_rank=source_rank)


def routed(
    graph: Graph,
    usual: dict[str, int],
    surge: dict[str, int],
    *,
    shift: int = 0,
    surge_weights: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Plan:
    """Return a plan with a second route; its rank n has the key of the usual one's rank n + shift.

    ``surge_weights``: as in :func:`planned`, of the ranks in ``surge``.
    """
    plan, other = planned(graph, usual), planned(graph, surge, weights=surge_weights)
    keys = [f"board_cpu{rank + shift}" for rank in range(len(other.ranks))]
    places = (
        replace(rank, key=key, cores=(rank.rank + shift,))
        for rank, key in zip(other.ranks, keys, strict=True)
    )
    joined = join_ranks(Placements(plan.ranks), Placements(tuple(places)))
    cut = partition(graph, surge)
    entries = range(max(surge.values()) + 1)
    counts = [len(surge_weights.get(entry, (1,))) for entry in entries]
    numbers = iter(joined.number)
    cut = in_turns(cut, [[next(numbers) for _ in range(count)] for count in counts])
    other = make_plan(
        plan.model,
        cut,
        joined.surge,
        source_rank=plan.job.source,
        sink_rank=plan.job.sink,
        idle=joined.idle,
    )
    return with_surge(plan, joined.usual, other)


def job_of(plan: Plan) -> Job:
    """Return what the driver of a plan says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "driver.py")
        path.write_text(render_driver(plan))
        return read_driver(path)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw plans, with any rank as the source.

    Some tensors may have an open size, and some ranks may take turns.
    """
    graph, ranks = draw(mapped_graphs())
    names = sorted({tensor.name for layer in graph.layers for tensor in layer.outputs})
    names += [tensor.name for tensor in graph.inputs]
    graph = opened(graph, *draw(st.sets(st.sampled_from(names))))
    weights = draw(turn_weights(max(ranks.values()) + 1))
    count = sum(len(weights.get(entry, (1,))) for entry in range(max(ranks.values()) + 1))
    source = draw(st.none() | st.integers(0, count - 1))
    return planned(graph, ranks, source_rank=source, weights=weights)


def turn_weights(entries: int, at_least: int = 0) -> st.SearchStrategy[dict[int, tuple[int, ...]]]:
    """Draw for some entries of a mapping the weights of the ranks that take turns."""
    weights = st.lists(st.integers(1, 3), min_size=2, max_size=3).map(tuple)
    most = min(2, entries)
    some = st.dictionaries(st.integers(0, entries - 1), weights, min_size=at_least, max_size=most)
    return some if at_least else st.just({}) | some


def wire(job: Job, rank: int, window: int | None = None, direct: Pairs = NO_PAIRS) -> Wiring:
    """Return what one rank sets up."""
    return wire_all(job, window, direct)[rank]
