"""What each rank of a plan has to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankslice.backend.runtime.pipeline.wiring import (
    CREDIT,
    Wiring,
    pairs_within_boards,
    wire_all,
)
from rankslice.backend.runtime.sizes import slot_bytes
from rankslice.framework.graph import Graph
from rankslice.framework.plan import MadeLayer, Plan
from rankslice.frontend.costs.costs import LayerCost, held_by, parameters_of


@dataclass(frozen=True, slots=True)
class RankCost:
    """What one rank runs, holds and exchanges for every frame that it handles on a route."""

    rank: int
    segments: int
    layers: int
    """Layers it runs, copies of constant ones included."""
    macs: int
    """Multiply-accumulate operations; those that are not known count nothing."""
    share: float
    """Of all ranks' MACs, from 0 to 1; 0 if there are none."""
    parameters: int
    weight_bytes: int
    """Size of the weights it holds, each once."""
    received_bytes: int
    """At most, if one of the tensors has open sizes."""
    sent_bytes: int
    """At most, if one of the tensors has open sizes."""
    slot_bytes: int
    """Size of its slots while it runs, with the plan's window; those of other ranks of its board
    that it reads are theirs."""
    receives_open: bool = False
    """Whether it receives tensors with open sizes."""
    sends_open: bool = False
    """Whether it sends tensors with open sizes."""


def layer_segments(plan: Plan) -> dict[str, tuple[tuple[int, int], ...]]:
    """Locate each layer on one route: pairs of a rank and a segment's index.

    Constant layers can run in several segments; layers that no output needs run in none. A layer
    that is split is where its parts are.
    """
    places: dict[str, tuple[tuple[int, int], ...]] = {}
    for segment in plan.segments:
        for layer in dict.fromkeys((*segment.layers, *plan.models_layers(segment.layers))):
            places[layer] = (*places.get(layer, ()), (segment.rank, segment.index))
    return places


def busy_ranks(plan: Plan, costs: Iterable[RankCost]) -> tuple[RankCost, ...]:
    ends = plan.job.source, plan.job.sink
    return tuple(cost for cost in costs if cost.segments or cost.rank in ends)


def rank_costs(graph: Graph, costs: Sequence[LayerCost], plan: Plan) -> tuple[RankCost, ...]:
    cost_of = {cost.layer: cost for cost in costs}
    for made in plan.made:
        # The graph may have them itself, or be that of the model before its layers were split.
        if made.name not in cost_of:
            cost_of[made.name] = _cost_of_part(made, cost_of.get(made.origin))
    all_macs = sum(_macs(plan, rank.rank, cost_of) for rank in plan.ranks)
    job = plan.job
    wirings = wire_all(job, job.window, pairs_within_boards(job))
    return tuple(
        _rank_cost(graph, plan, rank, cost_of, all_macs, wiring)
        for rank, wiring in enumerate(wirings)
    )


def _rank_cost(
    graph: Graph,
    plan: Plan,
    rank: int,
    cost_of: Mapping[str, LayerCost],
    all_macs: int,
    wiring: Wiring,
) -> RankCost:
    segments = plan.of_rank(rank)
    run = {name for segment in segments for name in segment.layers}
    layers = [layer for layer in graph.layers if layer.name in run]
    others = [cost_of[name] for name in run.difference(layer.name for layer in layers)]
    size = {item.name: item.nbytes or 0 for layer in layers for item in held_by(layer)}
    parameters: dict[str, int] = {}
    for layer in layers:
        parameters |= parameters_of(layer, cost_of[layer.name].macs or 0)
    macs = _macs(plan, rank, cost_of)
    tensors = plan.job.tensors
    received = [tensors[c.tensor] for c in plan.channels if c.destination == rank]
    sent = [tensors[c.tensor] for c in plan.channels if c.source == rank]
    rings = [ring for ring in wiring.rings if ring.tensor is not CREDIT and ring.home is None]
    return RankCost(
        rank=rank,
        segments=len(segments),
        layers=sum(len(segment.layers) for segment in segments),
        macs=macs,
        share=macs / all_macs if all_macs else 0.0,
        parameters=sum(parameters.values()) + sum(cost.parameters for cost in others),
        weight_bytes=sum(size.values()) + sum(cost.weight_bytes for cost in others),
        received_bytes=sum(tensor.nbytes or 0 for tensor in received),
        sent_bytes=sum(tensor.nbytes or 0 for tensor in sent),
        slot_bytes=sum(ring.depth * slot_bytes(ring.tensor) for ring in rings),
        receives_open=any(tensor.is_open for tensor in received),
        sends_open=any(tensor.is_open for tensor in sent),
    )


def _cost_of_part(made: MadeLayer, whole: LayerCost | None) -> LayerCost:
    """Return what a part costs, by what the whole layer does."""
    macs = round(made.share * (whole.macs or 0)) if whole else 0
    held = whole.weight_bytes if whole else 0
    parameters = round(whole.parameters * made.weight_bytes / held) if whole and held else 0
    return LayerCost(made.name, macs, parameters, 0, made.weight_bytes, 0, 0, None)


def _macs(plan: Plan, rank: int, cost_of: Mapping[str, LayerCost]) -> int:
    names = (name for segment in plan.of_rank(rank) for name in segment.layers)
    return sum(cost_of[name].macs or 0 for name in names)
