"""An inspection as a JSON object; ``docs/formats.md`` describes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rankslice.framework.graph import Layer, Tensor, constant_layers
from rankslice.framework.plan import Plan
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut
from rankslice.frontend.costs.liveness import largest_tensor, running_layers
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.inspecting.rank_costs import RankCost, layer_segments

FORMAT = "rankslice-inspection"
VERSION = 1

_Object = dict[str, Any]
_Segments = dict[str, tuple[tuple[int, int], ...]]


def inspection_to_json(inspection: Inspection) -> _Object:
    """Return the inspection as a JSON object; what is not known is ``null``."""
    graph = inspection.graph
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": {
            "name": graph.name,
            "format": graph.format,
            "ir_version": inspection.ir_version,
            "opsets": {domain or "ai.onnx": version for domain, version in inspection.opsets},
        },
        "inputs": _tensors(graph.inputs),
        "outputs": _tensors(graph.outputs),
        "totals": _totals(inspection),
        "memory": _memory(inspection),
        "layers": _layers(inspection),
        "cuts": [_cut(cut) for cut in inspection.cuts],
        "plan": _plan(inspection),
    }


def _totals(inspection: Inspection) -> _Object:
    totals = inspection.totals
    return {
        "layers": len(inspection.graph.layers),
        "running_layers": len(running_layers(inspection.graph)),
        "macs": totals.macs,
        "uncounted_layers": list(totals.uncounted),
        "parameters": totals.parameters,
        "moments": totals.moments,
        "weight_bytes": totals.weight_bytes,
        "constant_bytes": totals.constant_bytes,
    }


def _memory(inspection: Inspection) -> _Object:
    largest = largest_tensor(inspection.graph)
    return {
        "peak_activation_bytes": inspection.peak.nbytes,
        "peak_layer": inspection.peak.layer,
        "largest_tensor": _tensor(largest) if largest else None,
        "unsized_tensors": list(inspection.peak.unsized),
    }


def _layers(inspection: Inspection) -> list[_Object]:
    graph = inspection.graph
    constant = constant_layers(graph)
    running = {layer.name for layer in running_layers(graph)}
    routes = inspection.plan.routes if inspection.plan else ()
    usual, surge = (layer_segments(routes[n]) if routes[n:] else None for n in range(2))
    return [
        {
            **_layer(layer, cost),
            "constant": layer.name in constant,
            "runs": layer.name in running,
            "places": _segments_of(layer, usual),
            "surge_places": _segments_of(layer, surge),
        }
        for layer, cost in zip(graph.layers, inspection.costs, strict=True)
    ]


def _layer(layer: Layer, cost: LayerCost) -> _Object:
    return {
        "name": layer.name,
        "op": layer.op,
        "inputs": _tensors(layer.inputs),
        "outputs": _tensors(layer.outputs),
        "attributes": {name: plain(value) for name, value in layer.attributes},
        "macs": cost.macs,
        "parameters": cost.parameters,
        "moments": cost.moments,
        "weight_bytes": cost.weight_bytes,
        "output_bytes": cost.output_bytes,
    }


def _segments_of(layer: Layer, segments: _Segments | None) -> list[_Object] | None:
    if segments is None:
        return None
    return [{"rank": rank, "segment": segment} for rank, segment in segments.get(layer.name, ())]


def _cut(cut: Cut) -> _Object:
    return {
        "after": cut.after,
        "before": cut.before,
        "bytes": cut.nbytes,
        "open": cut.is_open,
        "obstacle": cut.obstacle,
        "tensors": [{"name": tensor.name, "bytes": tensor.nbytes} for tensor in cut.tensors],
        "macs_before": cut.macs,
        "share_before": cut.share,
        "parameters_before": cut.parameters,
        "parameter_share_before": cut.parameter_share,
        "weight_bytes_before": cut.weight_bytes,
    }


def _plan(inspection: Inspection) -> _Object | None:
    plan = inspection.plan
    if plan is None:
        return None
    surge = plan.routes[1] if plan.surge else None
    return {
        "source": plan.job.source,
        "sink": plan.job.sink,
        **_route(plan, inspection.ranks),
        "surge": None if surge is None else _route(surge, inspection.surge),
    }


def _route(plan: Plan, costs: Iterable[RankCost]) -> _Object:
    tensors = plan.job.tensors
    return {
        "minimal": plan.minimal,
        "window": plan.job.window,
        "ranks": [
            {
                "rank": cost.rank,
                "key": plan.ranks[cost.rank].key,
                "segments": cost.segments,
                "layers": cost.layers,
                "macs": cost.macs,
                "macs_share": cost.share,
                "parameters": cost.parameters,
                "weight_bytes": cost.weight_bytes,
                "received_bytes": cost.received_bytes,
                "sent_bytes": cost.sent_bytes,
                "slot_bytes": cost.slot_bytes,
            }
            for cost in costs
        ],
        "channels": [
            {
                "tensor": channel.tensor,
                "source": channel.source,
                "destination": channel.destination,
                "bytes": tensors[channel.tensor].nbytes,
                "open": tensors[channel.tensor].is_open,
            }
            for channel in plan.channels
        ],
    }


def _tensors(tensors: Iterable[Tensor]) -> list[_Object]:
    return [_tensor(tensor) for tensor in tensors]


def _tensor(tensor: Tensor) -> _Object:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype or None,
        "shape": None if tensor.shape is None else list(tensor.shape),
        "symbols": list(tensor.symbols),
        "bytes": tensor.nbytes,
    }


def plain(value: Any) -> Any:
    """Return a value as JSON has it, which knows neither infinity nor tuples."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
