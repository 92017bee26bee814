"""What a model consists of and costs, as tables and lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rankslice.backend.runtime.job import ALL
from rankslice.framework.graph import UNNAMED, AnyTensor, Graph, Layer, constant_layers
from rankslice.framework.plan import Plan
from rankslice.framework.wording import (
    bytes_text,
    count_text,
    first_of,
    joined,
    printable,
    share_text,
)
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.costs.liveness import largest_tensor, running_layers
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.inspecting.rank_costs import RankCost, busy_ranks, layer_segments
from rankslice.views.content import Table

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_CUTS = 9
"""An odd number: then one part of the model has its middle in it."""

_LARGE = 100
"""Layers that a terminal shows unasked; more would push all else out of sight."""
_WIDE = 130
"""Columns from which names of output tensors, and the usual type of their elements, have room."""
_MAX_NAMES = 5


def inspection_parts(
    inspection: Inspection,
    console: Console,
    most_cuts: int = DEFAULT_CUTS,
    *,
    summary: bool | None = None,
) -> Iterator[Table | str]:
    """Yield the layers, the totals, useful cuts, and what the plan's ranks do.

    A narrow console gets fewer columns. ``summary``: without the table of the layers; by default on
    a terminal if they are many.
    """
    count = len(inspection.graph.layers)
    is_short = console.is_terminal and count > _LARGE if summary is None else summary
    has_room = not console.is_terminal or console.width >= _WIDE
    if is_short:
        yield printable(inspection.graph.name)
    else:
        yield _layer_table(inspection, with_outputs=has_room)
    yield from _summary(inspection)
    yield from cut_parts(inspection, most_cuts)
    yield from _ranks(inspection)
    if is_short and summary is None:
        yield f"--no-summary lists the {count} layers"


def cut_parts(inspection: Inspection, most: int = DEFAULT_CUTS) -> Iterator[Table | str]:
    cuts = notable_cuts(inspection.cuts, most)
    if not cuts:
        return
    numbers = layer_numbers(inspection.graph)
    head = ("cut", "sent per frame", f"{inspection.share_of} before", "params before")
    rows = tuple(
        (
            *(str(numbers[cut.before]), size_of(cut)),
            *(share_text(cut.share), share_text(cut.parameter_share)),
            *(printable(cut.after), printable(cut.before)),
            _some([tensor.name for tensor in cut.tensors]),
        )
        for cut in cuts
    )
    names = ("last layer before", "first layer after", "tensors")
    yield Table("cuts, narrowest first", (*head, *names), rows)
    count = len(inspection.cuts)
    rest = "; --cuts N shows others, --json FILE has all" if len(cuts) < count else ""
    yield f"{len(cuts)} of {count} cuts between neighbouring layers{rest}"


def _ranks(inspection: Inspection) -> Iterator[Table | str]:
    titles = ("ranks", "ranks in a surge")
    for title, route in zip(titles, inspection.routes, strict=False):
        if route.plan is not None:
            yield rank_table(title, route.plan, busy_ranks(route.plan, route.ranks))
            yield from _parts(route.plan)
    if inspection.surge:
        pairs = zip(inspection.ranks, inspection.surge, strict=True)
        sizes = [sum(c.weight_bytes + c.slot_bytes for c in pair) for pair in pairs]
        of_ranks = (f"rank {rank} {bytes_text(size)}" for rank, size in enumerate(sizes))
        yield f"weights and slots of both routes: {', '.join(of_ranks)}"


def _parts(plan: Plan) -> Iterator[Table | str]:
    """Yield the layers that are split: those that follow each other in a segment as one row."""
    rows = []
    for segment in plan.segments:
        made = [plan.made_by_name[name] for name in segment.layers if name in plan.made_by_name]
        for by, group in groupby((m for m in made if m.kind == "part"), lambda part: part.by):
            parts = [*group]
            place = f"{segment.rank}.{segment.index}", printable(plan.ranks[segment.rank].key)
            ends = dict.fromkeys((parts[0].origin, parts[-1].origin))
            names = " to ".join(map(printable, ends))
            rows.append((*place, names, str(len(parts)), by, parts[0].box, parts[-1].box))
    if rows:
        head = ("rank", "key", "layers", "count", "split by", "part of the first", "of the last")
        yield Table("parts of layers", head, tuple(rows))
        kinds = Counter(made.kind for made in plan.made if made.kind != "part")
        counts = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items()]
        yield f"besides the model's layers: {joined(counts) or 'none'}"


def layer_numbers(graph: Graph) -> dict[str, int]:
    """Return the number by which ``--cuts`` knows each layer: from 1, in the graph's order.

    In a Keras model with one input, not nested, this is the index in ``model.layers``, where the
    input layer is 0.
    """
    return {layer.name: number for number, layer in enumerate(graph.layers, 1)}


def _layer_table(inspection: Inspection, *, with_outputs: bool) -> Table:
    graph = inspection.graph
    routes = inspection.plan.routes if inspection.plan else ()
    places = [layer_segments(route) for route in routes]
    rows = []
    for layer, cost in zip(graph.layers, inspection.costs, strict=True):
        segments = (of_layer.get(layer.name, ()) for of_layer in places)
        outputs = "\n".join(printable(tensor.name) for tensor in layer.outputs)
        rows.append(
            (
                *(", ".join(f"{rank}.{segment}" for rank, segment in own) for own in segments),
                *(printable(layer.name), printable(layer.op)),
                *((outputs,) if with_outputs else ()),
                *_figures(layer, cost, full=with_outputs),
            )
        )
    head = (
        *("rank", "in a surge")[: len(places)],
        *("layer", "operator"),
        *(("output",) if with_outputs else ()),
        *("shape", "MACs", "params", "weights", "makes"),
    )
    return Table(printable(graph.name), head, tuple(rows))


def _figures(layer: Layer, cost: LayerCost, *, full: bool) -> tuple[str, ...]:
    return (
        "\n".join(shape_text(tensor, full=full) for tensor in layer.outputs),
        macs_text(cost.macs),
        count_text(cost.parameters) if cost.parameters else "",
        bytes_text(cost.weight_bytes) if cost.weight_bytes else "",
        size_text(cost.output_bytes, at_most=are_open(layer.outputs)),
    )


def _summary(inspection: Inspection) -> Iterator[str]:
    graph, totals, peak = inspection.graph, inspection.totals, inspection.peak
    for label, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            yield f"{label}: {printable(tensor.name)} {shape_text(tensor)}"
    moments = f" ({totals.moments:,} of them means and variances of BatchNormalization)"
    yield (
        f"{_layer_counts(graph)}, {count_text(totals.macs)} MACs, {totals.parameters:,} parameters"
        f"{moments if totals.moments else ''}, {bytes_text(totals.weight_bytes)} of weights"
    )
    if are_open(graph.inputs) or any(are_open(layer.outputs) for layer in graph.layers):
        yield "sizes that change from frame to frame count with the largest ones, marked <="
    if totals.uncounted:
        yield f"the MACs of {_counted(totals.uncounted, 'layer')} are not known and not in the sum"
    if totals.constant_bytes != 0:
        yield f"constant layers besides weights make {size_text(totals.constant_bytes)}"
    largest = largest_tensor(graph)
    if largest is not None:
        yield (
            f"activations: at most {bytes_text(peak.nbytes)} at once, while"
            f" {printable(peak.layer)} runs; the largest is {printable(largest.name)},"
            f" {size_of(largest)}"
        )
    if peak.unsized:
        yield f"the size of {_counted(peak.unsized, 'tensor')} is not known and not in the sum"


def _layer_counts(graph: Graph) -> str:
    constant = len(constant_layers(graph))
    idle = len(graph.layers) - constant - len(running_layers(graph))
    kinds = {"constant": constant, "not needed for any output": idle}
    notes = [f"{count} {kind}" for kind, count in kinds.items() if count > 0]
    word = "layer" if len(graph.layers) == 1 else "layers"
    return f"{len(graph.layers)} {word}{f' ({joined(notes)})' if notes else ''}"


def _counted(names: Sequence[str], word: str) -> str:
    """Return a count, and the first of the names: ``2 layers (a, b)``."""
    return f"{len(names)} {word if len(names) == 1 else f'{word}s'} ({_some(names)})"


def _some(names: Sequence[str]) -> str:
    return ", ".join(first_of([printable(name) for name in names], _MAX_NAMES))


def rank_table(title: str, plan: Plan, costs: Iterable[RankCost]) -> Table:
    """Return segments, layers, costs and traffic of each rank on a route."""
    in_turn = any(placement.turns != ALL for placement in plan.ranks)
    rows = tuple(
        (
            *(str(cost.rank), printable(plan.ranks[cost.rank].key)),
            *((str(plan.ranks[cost.rank].turns),) if in_turn else ()),
            *(str(cost.segments), str(cost.layers), count_text(cost.macs), share_text(cost.share)),
            bytes_text(cost.weight_bytes),
            size_text(cost.received_bytes, at_most=cost.receives_open),
            size_text(cost.sent_bytes, at_most=cost.sends_open),
            bytes_text(cost.slot_bytes),
        )
        for cost in costs
    )
    columns = ("segments", "layers", "MACs", "share", "weights", "receives", "sends", "slots")
    return Table(title, ("rank", "key", *(("frames",) if in_turn else ()), *columns), rows)


def are_open(tensors: Iterable[AnyTensor]) -> bool:
    return any(tensor.is_open for tensor in tensors)


def size_text(nbytes: int | None, *, at_most: bool = False) -> str:
    """Return a number of bytes with three digits, or ``?``: ``1.54 kB``, ``<=1.54 kB``."""
    return "?" if nbytes is None else f"{'<=' * at_most}{bytes_text(nbytes)}"


def size_of(item: AnyTensor | Cut) -> str:
    return size_text(item.nbytes, at_most=item.is_open)


def macs_text(macs: int | None) -> str:
    """Return a number of MACs; none without any."""
    return "?" if macs is None else count_text(macs) if macs else ""


def shape_text(tensor: AnyTensor, *, full: bool = True) -> str:
    """Return shape and element type: ``1x3x224x224 float32``, ``1 x seq<=128 x 768 float32``.

    The usual type, float32, is named only if ``full``.
    """
    shape = "?" if tensor.shape is None else _sizes_text(tensor, tensor.shape) or "scalar"
    return f"{shape} {tensor.dtype or '?'}" if full or tensor.dtype != "float32" else shape


def _sizes_text(tensor: AnyTensor, shape: Sequence[int]) -> str:
    if not tensor.is_open:
        return "x".join(map(str, shape))
    return " x ".join(
        f"{'' if symbol == UNNAMED else printable(symbol)}<={size}" if symbol else str(size)
        for symbol, size in zip(tensor.symbols, shape, strict=True)
    )
