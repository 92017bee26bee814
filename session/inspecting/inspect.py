"""``rankslice inspect``: what a model consists of, costs, and where it can be cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import Graph, constant_layers
from rankslice.framework.plan import Plan
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.frontend.costs.costs import LayerCost, layer_costs, total_size
from rankslice.frontend.costs.cuts import Cut, cuts
from rankslice.frontend.costs.liveness import Peak, peak_memory
from rankslice.frontend.formats import Model, format_of, read_model
from rankslice.session.build_folder import (
    built_model,
    is_build_folder,
    read_plan,
    refuse_other_folders,
)
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.inspecting.rank_costs import RankCost, rank_costs

if TYPE_CHECKING:
    from rankslice.session.building.planning import MakeMapping

_USUAL = BuildOptions()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a model's layers."""

    macs: int
    """Multiply-accumulate operations of a frame; those that are not known count nothing."""
    uncounted: tuple[str, ...]
    """Names of the layers whose MACs are not known."""
    parameters: int
    """Numbers in the weights, shared ones counted once."""
    moments: int
    """Those of them that are means and variances of a BatchNormalization."""
    weight_bytes: int
    constant_bytes: int | None
    """Size of what other constant layers than ``Constant`` make, held beside the weights;
    ``None`` if that is not known."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model with what it costs, and a plan for it if there is one."""

    graph: Graph
    ir_version: int | None
    """Of an ONNX model: the version of its format."""
    opsets: tuple[tuple[str, int], ...]
    """Operator sets of an ONNX model: domain (empty: ONNX's own) and version."""
    costs: tuple[LayerCost, ...]
    """By layer, in the graph's order."""
    totals: Totals
    peak: Peak
    """Most memory of activations at once, in the graph's order."""
    cuts: tuple[Cut, ...]
    """Every cut in the graph's order."""
    plan: Plan | None
    ranks: tuple[RankCost, ...]
    """What each rank of the plan has to do, on the usual route; empty without a plan."""
    surge: tuple[RankCost, ...] = ()
    """What it has to do on the route for a surge; empty if there is none."""

    @property
    def share_of(self) -> str:
        """What :attr:`Cut.share` is a share of."""
        return "MACs" if self.totals.macs else "layers"

    @property
    def routes(self) -> tuple[Inspection, ...]:
        """The same with one of the plan's routes each, the usual one first."""
        if self.plan is None:
            return (self,)
        return tuple(
            replace(self, plan=route, ranks=ranks, surge=())
            for route, ranks in zip(self.plan.routes, (self.ranks, self.surge), strict=False)
        )


_NEEDED_FOR = {
    "horizontal": "the layers that are not split",
    "surge": "the route outside of a surge",
    "platform": "the layers of each accelerator",
    "profile": "which ranks take turns",
}
"""Options that need a mapping -> what the mapping says there."""


def inspect_model(
    model: Path,
    mapping: Path | MakeMapping | None = None,
    platform: PlatformSource | None = None,
    options: BuildOptions = _USUAL,
) -> Inspection:
    """Return the layers, costs and cuts of a model, and the plan of a mapping if there is one.

    Args:
        model: the model file; or a folder made by ``build``, whose model, sizes and plan are
            taken.
        mapping: a mapping file, or what makes a mapping: the plan that ``build`` would make is
            inspected, too. Ranks may share cores, since nothing runs.
        platform: the boards of the mapping; this machine if not given.
        options: of these the sizes, ``horizontal``, ``surge`` and ``profile``.

    Raises:
        RankSliceError: the file is no model, or one that cannot be sliced; the mapping or the
            platform have mistakes; the folder's model has changed.
    """
    of_plan = {
        "horizontal": options.horizontal,
        "surge": options.surge,
        "platform": platform,
        "profile": options.profile,
    }
    names = [name for name, value in of_plan.items() if value]
    if is_build_folder(model):
        names = [*(["mapping"] if mapping else []), *names]
        wrong = [*options.sizes.options, *(f"--{name}" for name in names)]
        expected = "give the model's file instead of the folder"
        found = f"{model} was built with its own mapping, platform and sizes"
        raise_mistakes(Mistake(name, found, expected) for name in wrong)
        plan = read_plan(model)
        return _inspection(built_model(model, plan, "inspect it"), plan)
    refuse_other_folders(model)
    if mapping is None:
        raise_mistakes(
            Mistake(f"--{name}", "needs a mapping", f"also give --mapping: {_NEEDED_FOR[name]}")
            for name in names
        )
        return _inspection(read_model(model, options.sizes), None)
    from rankslice.session.building.planning import plan_model  # loads all that explores

    planned = plan_model(model, mapping, platform or "local", options)
    return _inspection(planned.model, planned.plan)


def _inspection(model: Model, plan: Plan | None) -> Inspection:
    graph = model.graph
    costs = layer_costs(graph)
    ir_version, opsets = format_of(graph).versions(model)
    ranks = [rank_costs(graph, costs, route) for route in plan.routes] if plan else []
    return Inspection(
        graph=graph,
        ir_version=ir_version,
        opsets=opsets,
        costs=costs,
        totals=_totals(graph, costs),
        peak=peak_memory(graph),
        cuts=cuts(graph, costs),
        plan=plan,
        ranks=ranks[0] if ranks else (),
        surge=ranks[1] if ranks[1:] else (),
    )


def _totals(graph: Graph, costs: tuple[LayerCost, ...]) -> Totals:
    constant = constant_layers(graph) - {
        layer.name for layer in graph.layers if layer.op == "Constant"
    }
    return Totals(
        macs=sum(cost.macs or 0 for cost in costs),
        uncounted=tuple(cost.layer for cost in costs if cost.macs is None),
        parameters=sum(cost.new_parameters for cost in costs),
        moments=sum(cost.moments for cost in costs),
        weight_bytes=sum(cost.new_weight_bytes for cost in costs),
        constant_bytes=total_size(
            tensor for layer in graph.layers if layer.name in constant for tensor in layer.outputs
        ),
    )
