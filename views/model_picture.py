"""A model as a picture: a row per layer, lines for tensors, bars for what it costs.

The layers stand one below the other in the order in which they run, as in the table that
``inspect`` prints; so a cut is a place between two rows, and what would cross it are the lines that
pass there.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from markupsafe import Markup

from rankslice.backend.runtime.job import ALL, Channel, Rank, Turns
from rankslice.framework.graph import AnyTensor, Tensor
from rankslice.framework.plan import Plan
from rankslice.framework.quantities import bytes_text, count_text, share_text
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.costs.liveness import running_layers
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.inspecting.rank_costs import RankCost, busy_ranks, layer_segments
from rankslice.views.inspection import DEFAULT_CUTS, are_open, shape_text, size_text
from rankslice.views.lanes import (
    ROW,
    Row,
    assign_lanes,
    bend,
    column_width,
    stem,
    text_width,
)
from rankslice.views.svg import document, element, heading
from rankslice.views.terminal import shortened

_MARGIN = 20
_BAR = 90
_NAME, _OPERATOR, _SHAPE, _TITLE, _KEY = 48, 20, 24, 90, 30
"""Most letters of each."""
_TOOLTIP = 300
_MAX_TOLD = 8
_MAX_PLACES = 3
"""How many of the ranks in turn are named beside a row."""
_RANK_COLOURS = (
    *("#3574c4", "#c4701f", "#1d8a7c", "#7a5fc0", "#b5446e", "#6f7a1c", "#4b7186", "#96532f"),
)
_LIGHT_SOFT = (0.46, 0.5)
_GOLDEN_ANGLE = 0.381966
_PLAIN_COLOUR = "#4b647d"
_STYLE = """
.bold { font-weight: 600; }
.tint { opacity: 0.1; }
.bar { opacity: 0.75; }
.cut { fill: #b9c1ca; }
.best { fill: #24292f; }
.line { fill: none; stroke-width: 1.8; }
.local { opacity: 0.75; }
.cross { stroke: #d1242f; stroke-width: 2.2; stroke-dasharray: 5 3; }
.lead { stroke: #d1242f; stroke-width: 1; stroke-dasharray: 2 2; }
.sent { fill: #d1242f; }
.row:hover .back, .between:hover .back { fill: #24292f; opacity: 0.12; }
.back { opacity: 0; }
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """A rank on which a row runs, in the frames that it handles there."""

    rank: int
    segment: int | None
    turns: Turns


@dataclass(slots=True)
class _Item:
    """A row: a layer that runs, or a model's input or output."""

    kind: str
    """``layer``, ``input`` or ``output``."""
    name: str
    op: str
    reads: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]
    macs: int | None
    cost: LayerCost | None
    places: tuple[_Place, ...]
    """Several if ranks take turns; none without a plan."""
    x: int = 0
    y: int = 0
    """Where its dot is."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(place.rank for place in self.places)

    @property
    def colour(self) -> str:
        return _colour(self.ranks[0] if self.places else None)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the columns begin."""

    lanes: int
    name: int
    op: int
    shape: int
    macs: int
    cut: int
    end: int


def picture_of(inspection: Inspection) -> str:
    """Return a model as an SVG document; the same bytes for the same inspection.

    Layers that run for every frame are drawn, in the graph's order. With a plan they have the
    colours of their ranks, and a row before each arrival from another rank says how much comes.
    A second route has a picture of its own below.
    """
    routes = [_Layout(route) for route in inspection.routes]
    content: list[Markup] = []
    begin = 0
    for addition, layout in zip(("", ", in a surge"), routes, strict=False):
        drawn = _route(layout, addition)
        if begin:
            inside = Markup("\n").join(drawn)
            content.append(element("g", inside, transform=f"translate(0 {begin})"))
        else:
            content += drawn
        begin += layout.height
    label = shortened(inspection.graph.name, _TITLE)
    return document(label, max(layout.width for layout in routes), begin, content, _STYLE)


class _Layout:
    """Where the parts of a route's drawing are."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection, self.plan = inspection, inspection.plan
        self.items = _items(inspection)
        rows = [Row(_names(item.reads), _names(item.makes)) for item in self.items]
        lanes = assign_lanes(rows)
        self.columns = _columns(self.items, lanes.width)
        left = self.columns.lanes
        self.legend, legend_height, legend_end = _legend(inspection)
        self.width = max(self.columns.end, legend_end) + _MARGIN
        self.top = 104 + legend_height
        """Where the rows' headings stand."""
        self.arriving = _arriving(self.plan, self.items)
        y = self.top + 18
        for index, (item, lane) in enumerate(zip(self.items, lanes.rows, strict=True)):
            # Below a row for each channel that ends there.
            y += ROW * len(self.arriving.get(index, ()))
            item.x, item.y = left + lane * lanes.lane, y
            y += ROW
        self.height = (y if self.items else self.top) + _MARGIN
        self.tensor_xs = {name: left + lane * lanes.lane for name, lane in lanes.tensors.items()}


def _route(layout: _Layout, addition: str) -> list[Markup]:
    inspection = layout.inspection
    title = shortened(inspection.graph.name, _TITLE) + addition
    arrivals = [*_arrivals(layout)]
    return [
        *heading(title, _subtitle(inspection)),
        *layout.legend,
        *_headings(layout),
        *_tints(layout),
        *(lead for lead, _ in arrivals),
        *_lines(layout),
        *(text for _, text in arrivals),
        *_dots(layout),
        *_borders(layout),
    ]


def _headings(layout: _Layout) -> Iterator[Markup]:
    columns = layout.columns
    share_of = "MACs" if layout.inspection.totals.macs else "layers"
    texts = {
        columns.name: "layer",
        columns.op: "operator",
        columns.shape: "makes",
        columns.macs: "MACs",
        columns.cut: f"sent if cut there, {share_of} above",
    }
    if layout.legend:
        texts = {_MARGIN: "rank", **texts}
    for x, text in texts.items():
        yield element("text", text, x=x, y=layout.top - 6, class_="dim")


def _items(inspection: Inspection) -> list[_Item]:
    graph, plan = inspection.graph, inspection.plan
    segments = layer_segments(plan) if plan else {}
    cost_of = {cost.layer: cost for cost in inspection.costs}
    running = running_layers(graph)
    drawn = {t.name for t in graph.inputs} | {t.name for layer in running for t in layer.outputs}
    source, sink = (
        ((_Place(end, None, ALL),) for end in (plan.job.source, plan.job.sink))
        if plan
        else ((), ())
    )
    inputs = [
        _Item("input", tensor.name, "input", (), (tensor,), 0, None, source)
        for tensor in graph.inputs
    ]
    layers = [
        _Item(
            kind="layer",
            name=layer.name,
            op=layer.op,
            reads=tuple(tensor for tensor in layer.inputs if tensor.name in drawn),
            makes=layer.outputs,
            macs=cost_of[layer.name].macs,
            cost=cost_of[layer.name],
            places=_places(plan, segments.get(layer.name, ())),
        )
        for layer in running
    ]
    outputs = [
        _Item("output", tensor.name, "output", (tensor,), (), 0, None, sink)
        for tensor in graph.outputs
    ]
    return [*inputs, *layers, *outputs]


def _places(plan: Plan | None, segments: Iterable[tuple[int, int]]) -> tuple[_Place, ...]:
    ranks = plan.ranks if plan else ()
    return tuple(_Place(rank, segment, ranks[rank].turns) for rank, segment in segments)


def _columns(items: Sequence[_Item], lanes: int) -> _Columns:
    """Return columns as wide as what stands in them; lanes have their width already."""
    longest = max(map(text_width, map(_places_text, items)), default=0)
    first = _MARGIN + max(52 if longest else 12, longest + 16)
    name = first + lanes + 10
    op = name + column_width((item.name for item in items), _NAME)
    shape = op + column_width((item.op for item in items), _OPERATOR)
    macs = shape + column_width((_shape(item) for item in items), _SHAPE)
    cut = macs + _BAR + 70
    return _Columns(first, name, op, shape, macs, cut, cut + _BAR + 130)


def _arriving(plan: Plan | None, items: Sequence[_Item]) -> dict[int, list[Channel]]:
    """Return the channels that end at a row, by the row's index: at the rank's first reader."""
    first: dict[tuple[str, int], int] = {}
    for index, item in enumerate(items):
        for tensor in item.reads:
            for rank in item.ranks:
                first.setdefault((tensor.name, rank), index)
    arriving: dict[int, list[Channel]] = {}
    for channel in plan.channels if plan else ():
        reader = first.get((channel.tensor, channel.destination))
        if reader is not None:  # else it only tells a segment that there is a frame
            arriving.setdefault(reader, []).append(channel)
    return arriving


def _dots(layout: _Layout) -> Iterator[Markup]:
    """Yield the rows: where a layer runs, its name and operator, what it makes and costs."""
    columns = layout.columns
    most = max((item.macs or 0 for item in layout.items), default=0) or 1
    before = ""
    for item in layout.items:
        x, y = item.x, item.y
        # Where a segment starts.
        place = _places_text(item)
        named = place if place != before else ""
        before = place
        macs = item.macs or 0
        bar = max(1, round(_BAR * macs / most)) if macs else 0
        cost = "?" if item.macs is None else count_text(macs) if macs else ""
        bold = "bold" if item.kind != "layer" else None
        fill = item.colour if macs else "#ffffff"
        shape = shortened(_shape(item), _SHAPE)
        yield element(
            "g",
            element("title", "\n".join(_tooltip(item))),
            _back(0, y - ROW // 2, columns.cut - 8, ROW),
            *([element("text", named, x=_MARGIN, y=y, class_="bold")] if named else []),
            element("circle", cx=x, cy=y, r=5, fill=fill, stroke=item.colour, stroke_width=2),
            element("text", shortened(item.name, _NAME), x=columns.name, y=y, class_=bold),
            element("text", shortened(item.op, _OPERATOR), x=columns.op, y=y, class_="dim"),
            element("text", shape, x=columns.shape, y=y, class_="dim"),
            *([_bar(columns.macs, y, bar, 10, item.colour, "bar")] if bar else []),
            *([element("text", cost, x=columns.macs + bar + 6, y=y)] if cost else []),
            class_="row",
        )


def _bar(
    x: int, y: int, width: int, height: int, colour: str | None, kind: str | None = None
) -> Markup:
    box = {"x": x, "y": y - height // 2, "width": width, "height": height}
    return element("rect", **box, fill=colour, class_=kind)


def _back(x: int, y: int, width: int, height: int) -> Markup:
    """Return what shows where the mouse is."""
    return element("rect", x=x, y=y, width=width, height=height, class_="back")


def _places_text(item: _Item) -> str:
    """Return where a layer runs: ``1.0``, ``1.0|2.0`` or ``1.0|2.0|3.0|+5``; else nothing."""
    texts = [f"{place.rank}.{place.segment}" for place in item.places if place.segment is not None]
    more = len(texts) - _MAX_PLACES
    return "|".join([*texts[:_MAX_PLACES], *([f"+{more}"] if more > 0 else [])])


def _tints(layout: _Layout) -> Iterator[Markup]:
    """Yield the rows' backgrounds in the colours of ranks, as wide as their shares of frames."""
    for item in layout.items:
        if item.kind != "layer":
            continue
        shares = [(place.turns.share, _colour(place.rank)) for place in item.places]
        handled = Fraction(0)
        for share, colour in shares or [(Fraction(1), item.colour)]:
            begin = round(layout.width * handled)
            handled += share
            yield _bar(begin, item.y, round(layout.width * handled) - begin, ROW, colour, "tint")


def _tooltip(item: _Item) -> Iterator[str]:
    yield f"{shortened(item.name, _TOOLTIP)}: {shortened(item.op, _TOOLTIP)}"
    for place in item.places[:_MAX_TOLD]:
        segment = f", segment {place.segment}" if place.segment is not None else ""
        frames = f", frames {place.turns}" if place.turns != ALL else ""
        yield f"rank {place.rank}{segment}{frames}"
    if len(item.places) > _MAX_TOLD:
        yield f"and {len(item.places) - _MAX_TOLD} other ranks"
    for word, tensors in (("reads", item.reads), ("makes", item.makes)):
        for tensor in tensors:
            yield f"{word} {shortened(tensor.name, _TOOLTIP)} {shape_text(tensor)}"
    if item.cost is not None:
        macs = "unknown" if item.cost.macs is None else f"{item.cost.macs:,}"
        yield f"{macs} MACs, {item.cost.parameters:,} parameters"


def _lines(layout: _Layout) -> Iterator[Markup]:
    """Yield a stem for each tensor, dashed where it leads to other ranks only, and branches."""
    readers: dict[str, list[_Item]] = {}
    for item in layout.items:
        for tensor in item.reads:
            readers.setdefault(tensor.name, []).append(item)
    for item in layout.items:
        for tensor in item.makes:
            if tensor.name in readers:
                lane = layout.tensor_xs[tensor.name]
                yield from _tensor_lines(tensor, item, lane, readers[tensor.name])


def _tensor_lines(
    tensor: Tensor, start: _Item, lane: int, readers: Sequence[_Item]
) -> Iterator[Markup]:
    colour = start.colour
    whole = _line_tooltip(tensor, start, readers)
    local = crossing = 0
    for reader in readers:
        crosses = reader.ranks != start.ranks
        own = _line_tooltip(tensor, start, [reader])
        if start.x != lane != reader.x and reader.y - start.y < 2 * ROW:
            path = f"M{start.x} {start.y}{bend(start.x, reader.x, reader.y)}"
            yield _line(path, colour, crosses, own)
            continue
        leaves = reader.y if reader.x == lane else reader.y - ROW
        if reader.x != lane:
            path = f"M{lane} {leaves}{bend(lane, reader.x, reader.y)}"
            yield _line(path, colour, crosses, own)
        if crosses:
            crossing = max(crossing, leaves)
        else:
            local = max(local, leaves)
    if local:
        yield _line(f"{stem(start.x, start.y, lane)}V{local}", colour, False, whole)
    if crossing > local:
        begin = f"M{lane} {local}" if local else stem(start.x, start.y, lane)
        yield _line(f"{begin}V{crossing}", colour, True, whole)


def _line(path: str, colour: str, crosses: bool, tooltip: str) -> Markup:
    title = element("title", tooltip)
    if crosses:
        return element("path", title, d=path, class_="line cross")
    return element("path", title, d=path, class_="line local", stroke=colour)


def _line_tooltip(tensor: Tensor, maker: _Item, readers: Sequence[_Item]) -> str:
    size = "size unknown" if tensor.nbytes is None else _size_text(tensor)
    lines = [f"{shortened(tensor.name, _TOOLTIP)} {shape_text(tensor)}, {size}"]
    for reader in readers[:_MAX_TOLD]:
        ways = f", rank {_ranks(maker)} to rank {_ranks(reader)}"
        names = f"{shortened(maker.name, _TOOLTIP)} to {shortened(reader.name, _TOOLTIP)}"
        lines.append(f"{names}{ways if maker.ranks != reader.ranks else ''}")
    if len(readers) > _MAX_TOLD:
        lines.append(f"and to {len(readers) - _MAX_TOLD} others")
    return "\n".join(lines)


def _ranks(item: _Item) -> str:
    return "|".join(map(str, item.ranks))


def _size_text(tensor: AnyTensor) -> str:
    return size_text(tensor.nbytes, at_most=tensor.is_open)


def _cut_size(cut: Cut) -> str:
    return size_text(cut.nbytes, at_most=are_open(cut.tensors))


def _borders(layout: _Layout) -> Iterator[Markup]:
    """Yield the places between two rows: what would be sent if the model were cut there."""
    inspection, columns = layout.inspection, layout.columns
    y_of = {item.name: item.y for item in layout.items if item.kind == "layer"}
    notable = {cut.after for cut in notable_cuts(inspection.cuts, DEFAULT_CUTS)}
    most = max((cut.nbytes or 0 for cut in inspection.cuts), default=0) or 1
    share_of = "MACs" if inspection.totals.macs else "layers"
    for cut in inspection.cuts:
        y = y_of[cut.after] + ROW // 2
        width = 0 if cut.obstacle else max(1, round(_BAR * (cut.nbytes or 0) / most))
        text = "no cut" if cut.obstacle else f"{_cut_size(cut)}, {share_text(cut.share)}"
        kinds = ("best", "bold") if cut.after in notable else ("cut", "dim")
        yield element(
            "g",
            element("title", _border_tooltip(cut, share_of)),
            _back(columns.cut - 4, y - 10, columns.end - columns.cut, 20),
            _bar(columns.cut, y, width, 8, None, kinds[0]),
            element("text", text, x=columns.cut + width + 6, y=y, class_=kinds[1]),
            class_="between",
        )


def _border_tooltip(cut: Cut, share_of: str) -> str:
    if cut.obstacle:
        return f"the model cannot be cut here: {shortened(cut.obstacle, _TOOLTIP)}"
    shown = cut.tensors[:_MAX_TOLD]
    names = [f"  {shortened(tensor.name, _TOOLTIP)}, {_size_text(tensor)}" for tensor in shown]
    if len(cut.tensors) > len(shown):
        names.append(f"  and {len(cut.tensors) - len(shown)} more")
    return "\n".join(
        (
            f"a cut here would send {_cut_size(cut)} per frame:",
            *names,
            f"{share_text(cut.share)} of the {share_of} and {share_text(cut.parameter_share)}"
            " of the parameters are above it",
        )
    )


def _arrivals(layout: _Layout) -> Iterator[tuple[Markup, Markup]]:
    if layout.plan is None:
        return
    tensors = layout.plan.job.tensors
    for index, channels in layout.arriving.items():
        for number, channel in enumerate(channels):
            x = layout.tensor_xs[channel.tensor]
            y = layout.items[index].y - ROW * (len(channels) - number)
            right = layout.columns.name
            text = (
                f"{_size_text(tensors[channel.tensor])} from rank {channel.source}"
                f" to rank {channel.destination}{_frames(layout.plan, channel)}:"
                f" {shortened(channel.tensor, _NAME)}"
            )
            tooltip = f"channel {channel.number}: {shortened(channel.tensor, _TOOLTIP)}"
            yield (
                element("path", d=f"M{x} {y}H{right - 4}", class_="lead"),
                element(
                    "g",
                    element("title", tooltip),
                    element("circle", cx=x, cy=y, r=3.5, fill="#d1242f"),
                    element("text", text, x=right, y=y, class_="sent bold"),
                ),
            )


def _frames(plan: Plan, channel: Channel) -> str:
    """Return in how many frames a channel carries its tensor, if not in all."""
    needed = plan.job.turns_of_reader(channel.destination, channel.tensor)
    share = needed.shared_with(plan.job.turns_of_maker(channel.source, channel.tensor))
    return "" if share == 1 else f", {share.numerator} of {share.denominator} frames"


def _legend(inspection: Inspection) -> tuple[list[Markup], int, int]:
    plan = inspection.plan
    if plan is None:
        return [], 0, 0
    costs = busy_ranks(plan, inspection.ranks)
    in_turn = any(placement.turns != ALL for placement in plan.ranks)
    rows = [_legend_cells(plan.ranks[cost.rank], cost) for cost in costs]
    widths = {
        "rank": 60,
        "key": column_width((row["key"] for row in rows), _KEY),
        **({"frames": column_width((row["frames"] for row in rows), _KEY)} if in_turn else {}),
        "segments": 80,
        "layers": 70,
        "MACs": 100,
        "share": _BAR + 70,
        "weights": 90,
        "receives": 90,
        "sends": 90,
    }
    ends = accumulate(widths.values(), initial=_MARGIN + 22)
    xs = dict(zip(widths, ends, strict=False))
    most = max((cost.share for cost in inspection.ranks), default=0) or 1
    parts = [element("text", word, x=x, y=84, class_="dim") for word, x in xs.items()]
    for number, (cost, row) in enumerate(zip(costs, rows, strict=True)):
        y, colour = 92 + ROW * (number + 1), _colour(cost.rank)
        swatch = {"width": 14, "height": 14, "rx": 3}
        parts.append(element("rect", x=_MARGIN, y=y - 7, **swatch, fill=colour))
        parts += (element("text", row[word], x=x, y=y) for word, x in xs.items())
        parts.append(_bar(xs["share"] + 60, y, round(_BAR * cost.share / most), 8, colour))
    return parts, (len(rows) + 1) * ROW, xs["sends"] + 100


def _legend_cells(placement: Rank, cost: RankCost) -> dict[str, str]:
    return {
        "rank": str(cost.rank),
        "key": shortened(placement.key, _KEY),
        "frames": str(placement.turns),
        "segments": str(cost.segments),
        "layers": str(cost.layers),
        "MACs": count_text(cost.macs),
        "share": share_text(cost.share),
        "weights": bytes_text(cost.weight_bytes),
        "receives": size_text(cost.received_bytes, at_most=cost.receives_open),
        "sends": size_text(cost.sent_bytes, at_most=cost.sends_open),
    }


def _subtitle(inspection: Inspection) -> str:
    totals = inspection.totals
    layers = len(inspection.graph.layers)
    hidden = layers - len(running_layers(inspection.graph))
    note = f" ({hidden} that no frame needs are not drawn)" if hidden else ""
    return (
        f"{layers} layers{note}, {count_text(totals.macs)} MACs,"
        f" {totals.parameters:,} parameters, {bytes_text(totals.weight_bytes)} of weights,"
        f" at most {bytes_text(inspection.peak.nbytes)} of activations"
    )


def _colour(rank: int | None) -> str:
    """Return a rank's colour; those after the first ones are spread over the colour circle."""
    if rank is None:
        return _PLAIN_COLOUR
    if rank < len(_RANK_COLOURS):
        return _RANK_COLOURS[rank]
    red, green, blue = colorsys.hls_to_rgb(rank * _GOLDEN_ANGLE % 1, *_LIGHT_SOFT)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _shape(item: _Item) -> str:
    """Return the shape of the first of the tensors, and how many more there are."""
    tensors = item.makes or item.reads
    first = shape_text(tensors[0], full=False) if tensors else ""
    return f"{first} +{len(tensors) - 1}" if len(tensors) > 1 else first


def _names(tensors: Iterable[Tensor]) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors)
