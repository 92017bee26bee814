"""Two models side by side: what they consist of and cost, and what engines made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rankslice.framework.wording import bytes_text, count_text, fixed_text, printable
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.internals import Internals
from rankslice.views.content import UNKNOWN, Table
from rankslice.views.inspection import shape_text

FORMAT = "rankslice-comparison"
VERSION = 1

_TEXTS = {"MACs": count_text, "weights": bytes_text, "activations at most": bytes_text}
_TIME = "time of the nodes, us"

Figures = dict[str, Any]
"""Names of figures -> numbers or texts."""


def model_figures(inspection: Inspection) -> Figures:
    graph, totals = inspection.graph, inspection.totals
    tensors = {"input": graph.inputs, "output": graph.outputs}
    return {
        "format": graph.format,
        "layers": len(graph.layers),
        "MACs": totals.macs,
        "layers of unknown MACs": len(totals.uncounted),
        "parameters": totals.parameters,
        "weights": totals.weight_bytes,
        "activations at most": inspection.peak.nbytes,
        **{
            f"{side} {number}": f"{tensor.name} {shape_text(tensor)}"
            for side, of_side in tensors.items()
            for number, tensor in enumerate(of_side)
        },
        **_counts("layers", [layer.op for layer in graph.layers]),
    }


def engine_figures(internals: Internals) -> Figures:
    times = [node.microseconds for node in internals.nodes if node.microseconds is not None]
    times = times or [1e3 * row.mean_ms for row in internals.kernels]
    accelerated = internals.accelerated
    return {
        "engine": internals.runtime,
        "runs on": internals.provider,
        **{f"nodes, {level}": count for level, count in internals.levels.items()},
        "partitions": accelerated.partitions if accelerated is not None else None,
        _TIME: sum(times) if times else None,
        **_counts("nodes", [node.op for node in internals.nodes]),
    }


def _counts(of: str, operators: Sequence[str]) -> Figures:
    return {f"{of}: {name}": count for name, count in sorted(Counter(operators).items())}


def models_table(names: Sequence[str], both: Sequence[Figures]) -> Table:
    """Return a row for each figure that one of two models has, with a mark where they differ."""
    rows = tuple(
        (printable(name), *(_text(name, value) for value in values), "differs" if differs else "")
        for name, values, differs in _rows(both)
    )
    return Table("models side by side", ("figure", *map(printable, names), ""), rows)


def models_to_json(names: Sequence[str], both: Sequence[Figures]) -> Mapping[str, Any]:
    figures = [
        {"name": name, "values": values, "differs": differs}
        for name, values, differs in _rows(both)
    ]
    return {"format": FORMAT, "version": VERSION, "models": list(names), "figures": figures}


def _rows(both: Sequence[Figures]) -> list[tuple[str, list[Any], bool]]:
    first, other = both
    names = dict.fromkeys((*first, *other))
    pairs = [(name, [first.get(name), other.get(name)]) for name in names]
    return [(n, pair, pair[0] != pair[1]) for n, pair in pairs if pair != [None, None]]


def _text(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return printable(value)
    return fixed_text(value) if name == _TIME else _TEXTS.get(name, str)(value)
