"""An inspection as a JSON object; ``docs/formats.md`` describes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rankslice.framework.graph import Layer, Tensor, constant_layers
from rankslice.framework.plan import Plan
from rankslice.frontend.costs.cuts import Cut
from rankslice.frontend.costs.liveness import largest_tensor, running_layers
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.inspecting.rank_costs import RankCost, layer_segments

FORMAT = "rankslice-inspection"
VERSION = 1

_SIZES = ("macs", "parameters", "moments", "weight_bytes")
_RANK_FIELDS = (
    *("rank", "segments", "layers", "macs", "parameters", "weight_bytes"),
    *("received_bytes", "sent_bytes", "slot_bytes"),
)

_Object = dict[str, Any]
_Segments = dict[str, tuple[tuple[int, int], ...]]


def inspection_to_json(inspection: Inspection) -> _Object:
    """Return the inspection as a JSON object; what is not known is ``null``."""
    graph, totals = inspection.graph, inspection.totals
    largest = largest_tensor(graph)
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
        "totals": {
            "layers": len(graph.layers),
            "running_layers": len(running_layers(graph)),
            "uncounted_layers": list(totals.uncounted),
            **_of(totals, *_SIZES, "constant_bytes"),
        },
        "memory": {
            "peak_activation_bytes": inspection.peak.nbytes,
            "peak_layer": inspection.peak.layer,
            "largest_tensor": _tensor(largest) if largest else None,
            "unsized_tensors": list(inspection.peak.unsized),
        },
        "layers": _layers(inspection),
        "cuts": [_cut(cut) for cut in inspection.cuts],
        "plan": _plan(inspection),
    }


def _layers(inspection: Inspection) -> list[_Object]:
    graph = inspection.graph
    constant = constant_layers(graph)
    running = {layer.name for layer in running_layers(graph)}
    routes = inspection.plan.routes if inspection.plan else ()
    usual, surge = (layer_segments(routes[n]) if routes[n:] else None for n in range(2))
    return [
        {
            "name": layer.name,
            "op": layer.op,
            "inputs": _tensors(layer.inputs),
            "outputs": _tensors(layer.outputs),
            "attributes": {name: plain(value) for name, value in layer.attributes},
            **_of(cost, *_SIZES, "output_bytes"),
            "constant": layer.name in constant,
            "runs": layer.name in running,
            "places": _segments_of(layer, usual),
            "surge_places": _segments_of(layer, surge),
        }
        for layer, cost in zip(graph.layers, inspection.costs, strict=True)
    ]


def _segments_of(layer: Layer, segments: _Segments | None) -> list[_Object] | None:
    if segments is None:
        return None
    return [{"rank": rank, "segment": segment} for rank, segment in segments.get(layer.name, ())]


def _cut(cut: Cut) -> _Object:
    return {
        **_of(cut, "after", "before", "obstacle"),
        "bytes": cut.nbytes,
        "open": cut.is_open,
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
        "made": [asdict(layer) for layer in plan.made],
        "window": plan.job.window,
        "ranks": [
            {
                "key": plan.ranks[cost.rank].key,
                **_of(cost, *_RANK_FIELDS),
                "macs_share": cost.share,
            }
            for cost in costs
        ],
        "channels": [
            {
                **_of(channel, "tensor", "source", "destination", "compress"),
                "bytes": tensors[channel.tensor].nbytes,
                "open": tensors[channel.tensor].is_open,
            }
            for channel in plan.channels
        ],
    }


def _of(record: object, *names: str) -> _Object:
    return {name: getattr(record, name) for name in names}


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
