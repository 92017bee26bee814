"""Where a model can be cut in two, and what would cross there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import add

from rankslice.framework.graph import Graph, Layer, Tensor
from rankslice.framework.wording import listed, quoted
from rankslice.frontend.costs.costs import LayerCost, total_size
from rankslice.frontend.costs.liveness import lifetimes, running_layers
from rankslice.frontend.partition.crossing import crossing_fault


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut through the layers in the graph's order: some before it, the others after it."""

    after: str
    """Name of the last layer before it that runs for every frame."""
    before: str
    """Name of the first such layer after it."""
    tensors: tuple[Tensor, ...]
    """What would cross for every frame if one rank ran what is before and another what is after,
    once each: what earlier layers make for later ones, model inputs that are read on both sides or
    later, and model outputs that are made earlier than the last one."""
    nbytes: int | None
    """Their size; ``None`` where that of one is not known beforehand."""
    macs: int
    """MACs of the layers before it; those that are not known count nothing."""
    parameters: int
    weight_bytes: int
    share: float
    """How far through the model it is, from 0 to 1: by MACs; in a model without any by layers."""
    parameter_share: float
    """Share of the model's parameters before it, from 0 to 1; 0 in a model without any."""
    obstacle: str
    """Why the model cannot be cut there; empty if it can."""

    @property
    def is_open(self) -> bool:
        """Whether a tensor has open sizes, so that ``nbytes`` is the most."""
        return any(tensor.is_open for tensor in self.tensors)

    @property
    def divides(self) -> bool:
        """Whether either side has a hundredth of the MACs or a tenth of the parameters."""
        before = self.share >= 0.01 or self.parameter_share >= 0.1
        return before and (self.share <= 0.99 or self.parameter_share <= 0.9)


def cuts(graph: Graph, costs: Sequence[LayerCost]) -> tuple[Cut, ...]:
    running = running_layers(graph)
    figures = ((cost.macs or 0, cost.new_parameters, cost.new_weight_bytes) for cost in costs)
    sums = [*accumulate(figures, lambda one, other: tuple(map(add, one, other)))]
    up_to = dict(zip((cost.layer for cost in costs), sums, strict=True))
    total, all_parameters, _ = sums[-1] if sums else (0, 0, 0)
    spans = lifetimes(graph)
    bound = _bound(graph, running)
    arriving: dict[int, list[Tensor]] = {}
    leaving: dict[int, list[str]] = {}
    for span in spans:
        arriving.setdefault(span.first, []).append(span.tensor)
        leaving.setdefault(span.last, []).append(span.tensor.name)
    faults = {span.tensor.name: crossing_fault(span.tensor) for span in spans}
    crossing: dict[str, Tensor] = {}
    all_cuts = []
    for index, layer in enumerate(running[:-1]):
        crossing |= {tensor.name: tensor for tensor in arriving.get(index, ())}
        for name in leaving.get(index, ()):
            del crossing[name]
        fault = next((f"{quoted(n)} cannot cross: {faults[n]}" for n in crossing if faults[n]), "")
        macs, parameters, weight_bytes = up_to[layer.name]
        all_cuts.append(
            Cut(
                after=layer.name,
                before=running[index + 1].name,
                tensors=tuple(crossing.values()),
                nbytes=total_size(crossing.values()),
                macs=macs,
                parameters=parameters,
                weight_bytes=weight_bytes,
                share=macs / total if total else (index + 1) / len(running),
                parameter_share=parameters / all_parameters if all_parameters else 0.0,
                obstacle=fault or bound.get(index, ""),
            )
        )
    return tuple(all_cuts)


def _bound(graph: Graph, running: Sequence[Layer]) -> dict[int, str]:
    position = {layer.name: index for index, layer in enumerate(running)}
    bound: dict[int, str] = {}
    for bond in graph.bonds:
        positions = [position[name] for name in bond.layers if name in position]
        for index in range(min(positions, default=0), max(positions, default=0)):
            bound[index] = f"{listed(bond.layers)} {bond.reason}"
    return bound


def notable_cuts(all_cuts: Sequence[Cut], count: int) -> tuple[Cut, ...]:
    """Return at most ``count`` of the cuts, spread over the model, narrowest first.

    The model is divided into ``count`` parts with the same number of MACs, and the narrowest cut
    in each is taken; of equals the one closest to the middle of the part. A cut that leaves less
    than a hundredth of the MACs and less than a tenth of the parameters on one side is not taken.
    With room for all cuts, all are taken. Those that are impossible never are.
    """
    possible = [cut for cut in all_cuts if not cut.obstacle]
    if len(possible) > count:
        best: dict[int, Cut] = {}
        for cut in possible if count else ():
            if cut.divides:
                part = min(int(cut.share * count), count - 1)
                best[part] = min(best.get(part, cut), cut, key=partial(_rank, part, count))
        possible = [*best.values()]
    return tuple(sorted(possible, key=lambda cut: (cut.nbytes or 0, cut.share)))


def _rank(part: int, count: int, cut: Cut) -> tuple[int, float]:
    return cut.nbytes or 0, abs(cut.share * count - part - 0.5)
