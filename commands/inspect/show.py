"""An inspection, printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankslice.backend.runtime.job import ALL
from rankslice.commands.inspect.inspect import Inspection
from rankslice.commands.inspect.rank_costs import RankCost, busy_ranks, layer_segments
from rankslice.commands.output import print_line
from rankslice.framework.graph import UNNAMED, AnyTensor, Graph, Layer, constant_layers
from rankslice.framework.plan import Plan
from rankslice.framework.quantities import bytes_text, count_text, share_text
from rankslice.framework.wording import joined, printable
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.costs.liveness import largest_tensor, running_layers

DEFAULT_CUTS = 9
"""An odd number: then one part of the model has its middle in it."""

_LARGE = 100
"""Layers that a terminal shows unasked; more would push all else out of sight."""
_WIDE = 130
"""Columns from which names of output tensors, and the usual type of their elements, have room."""
_UNBOUNDED = 1_000_000
_MAX_NAMES = 5


def print_inspection(
    inspection: Inspection,
    console: Console,
    most_cuts: int = DEFAULT_CUTS,
    *,
    summary: bool | None = None,
) -> None:
    """Print the layers, the totals, cuts worth a look, and what the plan's ranks do.

    On a terminal names are wrapped to its width; elsewhere tables are as wide as they need to be.

    Args:
        summary: leave the table of the layers out; by default on a terminal if they are many.
    """
    count = len(inspection.graph.layers)
    is_short = console.is_terminal and count > _LARGE if summary is None else summary
    with _room_for_names(console):
        if is_short:
            print_line(console, printable(inspection.graph.name))
        else:
            console.print(_layer_table(inspection, with_outputs=console.width >= _WIDE))
        for line in _summary(inspection):
            print_line(console, line)
        _print_cuts(inspection, console, most_cuts)
        if inspection.plan is not None:
            _print_ranks(inspection, console)
        if is_short and summary is None:
            print_line(console, f"--no-summary lists the {count} layers")


def _print_ranks(inspection: Inspection, console: Console) -> None:
    titles = ("ranks", "ranks in a surge")
    for title, route in zip(titles, inspection.routes, strict=False):
        if route.plan is not None:
            console.print()
            console.print(_rank_table(title, route.plan, route.ranks))
    if inspection.surge:
        pairs = zip(inspection.ranks, inspection.surge, strict=True)
        sizes = [sum(c.weight_bytes + c.slot_bytes for c in pair) for pair in pairs]
        each = (f"rank {rank} {bytes_text(size)}" for rank, size in enumerate(sizes))
        print_line(console, f"weights and slots of both routes: {', '.join(each)}")


def print_cuts(inspection: Inspection, console: Console, most_cuts: int = DEFAULT_CUTS) -> None:
    with _room_for_names(console):
        _print_cuts(inspection, console, most_cuts)


def _print_cuts(inspection: Inspection, console: Console, most_cuts: int) -> None:
    chosen = notable_cuts(inspection.cuts, most_cuts)
    if not chosen:
        return
    numbers = layer_numbers(inspection.graph)
    share_of = "MACs" if inspection.totals.macs else "layers"
    console.print()
    console.print(_cut_table([(numbers[cut.before], cut) for cut in chosen], share_of))
    print_line(console, _cut_caption(len(chosen), len(inspection.cuts)))


def layer_numbers(graph: Graph) -> dict[str, int]:
    """Return the number by which ``--cuts`` knows each layer: from 1, in the graph's order.

    In a Keras model with one input, not nested, this is the index in ``model.layers``, where the
    input layer is 0.
    """
    return {layer.name: number for number, layer in enumerate(graph.layers, 1)}


@contextmanager
def _room_for_names(console: Console) -> Iterator[None]:
    """Let tables be as wide as they like unless a terminal shows them."""
    width = console.width
    if not console.is_terminal:
        console.width = _UNBOUNDED
    yield
    console.width = width


def print_parts(parts: Iterable[Table | str], console: Console) -> None:
    """Print tables, an empty line before each, and lines of text."""
    with _room_for_names(console):
        for part in parts:
            if isinstance(part, str):
                print_line(console, part)
            else:
                console.print()
                console.print(part)


def _layer_table(inspection: Inspection, *, with_outputs: bool) -> Table:
    graph = inspection.graph
    routes = inspection.plan.routes if inspection.plan else ()
    places = [layer_segments(route) for route in routes]
    table = plain_table(printable(graph.name))
    for _, heading in zip(places, ("rank", "in a surge"), strict=False):
        table.add_column(heading, justify="right")
    table.add_column("layer", overflow="fold")
    table.add_column("operator", overflow="fold")
    if with_outputs:
        table.add_column("output", overflow="fold")
    table.add_column("shape", overflow="fold")
    for heading in ("MACs", "params", "weights", "makes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer, cost in zip(graph.layers, inspection.costs, strict=True):
        ranks = (_ranks(segments.get(layer.name, ())) for segments in places)
        made = Text("\n".join(printable(tensor.name) for tensor in layer.outputs))
        table.add_row(
            *ranks,
            Text(printable(layer.name)),
            Text(printable(layer.op)),
            *((made,) if with_outputs else ()),
            *_figures(layer, cost, full=with_outputs),
        )
    return table


def plain_table(title: str) -> Table:
    return Table(title=Text(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")


def _figures(layer: Layer, cost: LayerCost, *, full: bool) -> tuple[Text | str, ...]:
    return (
        Text("\n".join(shape_text(tensor, full=full) for tensor in layer.outputs)),
        "?" if cost.macs is None else count_text(cost.macs) if cost.macs else "",
        count_text(cost.parameters) if cost.parameters else "",
        bytes_text(cost.weight_bytes) if cost.weight_bytes else "",
        size_text(cost.output_bytes, at_most=are_open(layer.outputs)),
    )


def _summary(inspection: Inspection) -> Iterator[str]:
    graph, totals, peak = inspection.graph, inspection.totals, inspection.peak
    for label, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            yield f"{label}: {printable(tensor.name)} {shape_text(tensor)}"
    yield (
        f"{_layer_counts(graph)}, {count_text(totals.macs)} MACs, {totals.parameters:,} parameters"
        f"{_moments(totals.moments)}, {bytes_text(totals.weight_bytes)} of weights"
    )
    if are_open(graph.inputs) or any(are_open(layer.outputs) for layer in graph.layers):
        yield "sizes that change from frame to frame count with the largest ones, marked <="
    if totals.uncounted:
        yield f"the MACs of {_some(totals.uncounted, 'layer')} are not known and not in the sum"
    if totals.constant_bytes != 0:
        yield f"constant layers besides weights make {size_text(totals.constant_bytes)}"
    largest = largest_tensor(graph)
    if largest is not None:
        yield (
            f"activations: at most {bytes_text(peak.nbytes)} at once, while"
            f" {printable(peak.layer)} runs; the largest is {printable(largest.name)},"
            f" {size_text(largest.nbytes, at_most=largest.is_open)}"
        )
    if peak.unsized:
        yield f"the size of {_some(peak.unsized, 'tensor')} is not known and not in the sum"


def _layer_counts(graph: Graph) -> str:
    constant = len(constant_layers(graph))
    idle = len(graph.layers) - constant - len(running_layers(graph))
    notes = [
        f"{count} {word}"
        for count, word in ((constant, "constant"), (idle, "not needed for any output"))
        if count > 0
    ]
    word = "layer" if len(graph.layers) == 1 else "layers"
    return f"{len(graph.layers)} {word}{f' ({joined(notes)})' if notes else ''}"


def _moments(count: int) -> str:
    return f" ({count:,} of them means and variances of BatchNormalization)" if count else ""


def _some(names: tuple[str, ...], word: str) -> str:
    """Return a count, and the first of the names: ``2 layers (a, b)``."""
    shown = [printable(name) for name in names[:_MAX_NAMES]]
    more = ["..."] if len(names) > _MAX_NAMES else []
    plural = word if len(names) == 1 else f"{word}s"
    return f"{len(names)} {plural} ({', '.join((*shown, *more))})"


def _cut_table(found: Iterable[tuple[int, Cut]], share_of: str) -> Table:
    table = plain_table("cuts, narrowest first")
    table.add_column("cut", justify="right", no_wrap=True)
    table.add_column("sent per frame", justify="right", no_wrap=True)
    for heading in (f"{share_of} before", "params before"):
        table.add_column(heading, justify="right")
    for heading in ("last layer before", "first layer after", "tensors"):
        table.add_column(heading, overflow="fold")
    for number, cut in found:
        table.add_row(
            str(number),
            size_text(cut.nbytes, at_most=are_open(cut.tensors)),
            share_text(cut.share),
            share_text(cut.parameter_share),
            Text(printable(cut.after)),
            Text(printable(cut.before)),
            Text(_tensor_names(cut)),
        )
    return table


def _tensor_names(cut: Cut) -> str:
    names = [printable(tensor.name) for tensor in cut.tensors[:_MAX_NAMES]]
    left = len(cut.tensors) - len(names)
    return ", ".join([*names, *([f"... and {left} more"] if left else [])])


def _cut_caption(shown: int, count: int) -> str:
    rest = "; --cuts N shows others, --json FILE has all" if shown < count else ""
    return f"{shown} of {count} cuts between neighbouring layers{rest}"


def _rank_table(title: str, plan: Plan, costs: Iterable[RankCost]) -> Table:
    table = plain_table(title)
    table.add_column("rank", justify="right")
    table.add_column("key", overflow="fold")
    in_turn = any(placement.turns != ALL for placement in plan.ranks)
    if in_turn:
        table.add_column("frames")
    for heading in ("segments", "layers", "MACs", "share", "weights", "receives", "sends", "slots"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in busy_ranks(plan, costs):
        table.add_row(
            str(cost.rank),
            Text(printable(plan.ranks[cost.rank].key)),
            *((str(plan.ranks[cost.rank].turns),) if in_turn else ()),
            str(cost.segments),
            str(cost.layers),
            count_text(cost.macs),
            share_text(cost.share),
            bytes_text(cost.weight_bytes),
            size_text(cost.received_bytes, at_most=cost.receives_open),
            size_text(cost.sent_bytes, at_most=cost.sends_open),
            bytes_text(cost.slot_bytes),
        )
    return table


def _ranks(segments: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{rank}.{segment}" for rank, segment in segments)


def are_open(tensors: Iterable[AnyTensor]) -> bool:
    return any(tensor.is_open for tensor in tensors)


def size_text(nbytes: int | None, *, at_most: bool = False) -> str:
    """Return a number of bytes with three digits, or ``?``: ``1.54 kB``, ``<=1.54 kB``."""
    return "?" if nbytes is None else f"{'<=' * at_most}{bytes_text(nbytes)}"


def shape_text(tensor: AnyTensor, *, full: bool = True) -> str:
    """Return shape and element type: ``1x3x224x224 float32``, ``1 x seq<=128 x 768 float32``.

    Args:
        full: name the type even if it is the usual one, float32.
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
