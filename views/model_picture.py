"""A model as a picture: a row per layer, lines for tensors, bars for what it costs.

The layers stand one below the other in the order in which they run, as in the table that
``inspect`` prints; so a cut is a place between two rows, and what would cross it are the lines that
pass there.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from markupsafe import Markup

from rankslice.backend.runtime.job import ALL, Channel, Turns
from rankslice.framework.graph import AnyTensor
from rankslice.framework.plan import Plan
from rankslice.framework.wording import bytes_text, count_text, first_of, share_text
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.costs.liveness import running_layers
from rankslice.session.inspecting.inspect import Inspection
from rankslice.session.inspecting.rank_costs import busy_ranks, layer_segments
from rankslice.views.inspection import DEFAULT_CUTS, macs_text, rank_table, shape_text, size_of
from rankslice.views.lanes import assign_lanes
from rankslice.views.svg import (
    MARGIN,
    ROW,
    bar,
    column_starts,
    document,
    element,
    heading,
    table_texts,
)
from rankslice.views.terminal import shortened

_BAR = 90
_HEADINGS = ("layer", "operator", "makes")
_NAME, _OPERATOR, _SHAPE, _TITLE = 48, 20, 24, 90
"""Maximum number of letters of each."""
_TOOLTIP = 300
_MAX_LINES = 8
"""Of a list in a tooltip."""
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
class _Row:
    """A layer that runs, or a model's input or output."""

    name: str
    op: str
    reads: Sequence[AnyTensor]
    makes: Sequence[AnyTensor]
    cost: LayerCost | None
    """``None``: an input or output."""
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

    @property
    def macs(self) -> int:
        return (self.cost.macs if self.cost else None) or 0

    @property
    def where(self) -> str:
        """Rank and segment: ``1.0``, ``1.0|2.0`` or ``1.0|2.0|3.0|+5``; or nothing."""
        texts = [f"{one.rank}.{one.segment}" for one in self.places if one.segment is not None]
        return "|".join(first_of(texts, _MAX_PLACES, "+{}"))

    @property
    def shape(self) -> str:
        """The shape of the first of the tensors, and how many more there are."""
        tensors = self.makes or self.reads
        first = shape_text(tensors[0], full=False) if tensors else ""
        more = f" +{len(tensors) - 1}" if len(tensors) > 1 else ""
        return shortened(first + more, _SHAPE)

    @property
    def texts(self) -> tuple[str, str, str]:
        """What stands in its columns."""
        return shortened(self.name, _NAME), shortened(self.op, _OPERATOR), self.shape


def picture_of(inspection: Inspection) -> str:
    """Return a model as an SVG document; the same bytes for the same inspection.

    Layers that run for every frame are drawn, in the graph's order. With a plan they have the
    colours of their ranks, and a row before each arrival from another rank says how much comes.
    A second route has a picture of its own below.
    """
    content: list[Markup] = []
    width = begin = 0
    for addition, route in zip(("", ", in a surge"), inspection.routes, strict=False):
        drawing = _Drawing(route)
        drawn = [*drawing.parts(addition)]
        if begin:
            inside = Markup("\n").join(drawn)
            drawn = [element("g", inside, transform=f"translate(0 {begin})")]
        content += drawn
        begin += drawing.height
        width = max(width, drawing.width)
    return document(shortened(inspection.graph.name, _TITLE), width, begin, content, _STYLE)


class _Drawing:
    """A route: its rows, and where they and their columns are."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection, self.plan = inspection, inspection.plan
        self.rows = [*_rows(inspection)]
        self.legend, top, legend_end = _legend(inspection)
        lanes = assign_lanes(
            [
                ([tensor.name for tensor in row.reads], [tensor.name for tensor in row.makes])
                for row in self.rows
            ]
        )
        places = [row.where for row in self.rows]
        left = column_starts([places], MARGIN)[-1] if any(places) else MARGIN + 12
        texts = zip(_HEADINGS, *(row.texts for row in self.rows), strict=True)
        starts = column_starts(texts, left + lanes.width + 10)
        self.name, self.op, self.shape, self.macs = starts
        self.cut = self.macs + _BAR + 70
        self.end = self.cut + _BAR + 130
        self.width = max(self.end, legend_end) + MARGIN
        self.top = top
        """Where the rows' headings stand."""
        self.arriving = _arriving(self.plan, self.rows)
        y = top + 24
        for index, (row, lane) in enumerate(zip(self.rows, lanes.rows, strict=True)):
            # Below a row for each channel that ends there.
            y += ROW * len(self.arriving.get(index, ()))
            row.x, row.y = left + lane * lanes.lane, y
            y += ROW
        self.height = y + MARGIN
        self.tensor_xs = {name: left + lane * lanes.lane for name, lane in lanes.tensors.items()}

    def parts(self, addition: str) -> Iterator[Markup]:
        title = shortened(self.inspection.graph.name, _TITLE) + addition
        arrivals = [*self._arrivals()]
        yield from heading(title, _subtitle(self.inspection))
        yield from self.legend
        yield from self._headings()
        yield from self._tints()
        yield from (lead for lead, _ in arrivals)
        yield from self._lines()
        yield from (text for _, text in arrivals)
        yield from self._row_texts()
        yield from self._cuts()

    def _headings(self) -> Iterator[Markup]:
        texts = {
            **dict(zip((self.name, self.op, self.shape), _HEADINGS, strict=True)),
            self.macs: "MACs",
            self.cut: f"sent if cut there, {self.inspection.share_of} above",
        }
        if self.legend:
            texts = {MARGIN: "rank", **texts}
        for x, text in texts.items():
            yield element("text", text, x=x, y=self.top, class_="dim")

    def _tints(self) -> Iterator[Markup]:
        """Yield the rows' backgrounds in the colours of ranks, by their shares of frames."""
        for row in self.rows:
            if row.cost is None:
                continue
            shares = [(place.turns.share, _colour(place.rank)) for place in row.places]
            whole = max(1, sum(share for share, _ in shares))  # more, of several parts of a layer
            handled = Fraction(0)
            for share, colour in shares or [(Fraction(1), row.colour)]:
                begin = round(self.width * handled)
                handled += share / whole
                width = round(self.width * handled) - begin
                yield bar(begin, row.y, width, ROW, fill=colour, class_="tint")

    def _row_texts(self) -> Iterator[Markup]:
        """Yield the rows: where a layer runs, its name and operator, what it makes and costs."""
        most = max((row.macs for row in self.rows), default=0) or 1
        before = ""
        for row in self.rows:
            x, y = row.x, row.y
            # Where a segment starts.
            where = row.where if row.where != before else ""
            before = row.where
            width = max(1, round(_BAR * row.macs / most)) if row.macs else 0
            cost = macs_text(row.cost.macs) if row.cost else ""
            fill = row.colour if row.macs else "#ffffff"
            name, *others = row.texts
            yield element(
                "g",
                element("title", "\n".join(_tooltip(row))),
                bar(0, y, self.cut - 8, ROW, class_="back"),
                *([element("text", where, x=MARGIN, y=y, class_="bold")] if where else []),
                element("circle", cx=x, cy=y, r=5, fill=fill, stroke=row.colour, stroke_width=2),
                element("text", name, x=self.name, y=y, class_=None if row.cost else "bold"),
                *(
                    element("text", text, x=at, y=y, class_="dim")
                    for at, text in zip((self.op, self.shape), others, strict=True)
                ),
                *([bar(self.macs, y, width, 10, fill=row.colour, class_="bar")] if width else []),
                *([element("text", cost, x=self.macs + width + 6, y=y)] if cost else []),
                class_="row",
            )

    def _lines(self) -> Iterator[Markup]:
        """Yield a stem for each tensor, dashed where it leads to other ranks only, and branches."""
        readers: dict[str, list[_Row]] = {}
        for row in self.rows:
            for tensor in row.reads:
                readers.setdefault(tensor.name, []).append(row)
        for row in self.rows:
            for tensor in row.makes:
                if tensor.name in readers:
                    lane = self.tensor_xs[tensor.name]
                    yield from _tensor_lines(tensor, row, lane, readers[tensor.name])

    def _cuts(self) -> Iterator[Markup]:
        """Yield the places between two rows: what would be sent if the model were cut there."""
        inspection = self.inspection
        y_of = {row.name: row.y for row in self.rows if row.cost is not None}
        notable = {cut.after for cut in notable_cuts(inspection.cuts, DEFAULT_CUTS)}
        most = max((cut.nbytes or 0 for cut in inspection.cuts), default=0) or 1
        for cut in inspection.cuts:
            y = y_of[cut.after] + ROW // 2
            width = 0 if cut.obstacle else max(1, round(_BAR * (cut.nbytes or 0) / most))
            text = "no cut" if cut.obstacle else f"{size_of(cut)}, {share_text(cut.share)}"
            kinds = ("best", "bold") if cut.after in notable else ("cut", "dim")
            yield element(
                "g",
                element("title", _cut_tooltip(cut, inspection.share_of)),
                bar(self.cut - 4, y, self.end - self.cut, 20, class_="back"),
                bar(self.cut, y, width, 8, class_=kinds[0]),
                element("text", text, x=self.cut + width + 6, y=y, class_=kinds[1]),
                class_="between",
            )

    def _arrivals(self) -> Iterator[tuple[Markup, Markup]]:
        """Yield a line and a text for each channel."""
        if self.plan is None:
            return
        tensors = self.plan.job.tensors
        for index, channels in self.arriving.items():
            for number, channel in enumerate(channels):
                x = self.tensor_xs[channel.tensor]
                y = self.rows[index].y - ROW * (len(channels) - number)
                compressed = "" if channel.compress == "none" else f", {channel.compress}"
                text = (
                    f"{size_of(tensors[channel.tensor])} from rank {channel.source}"
                    f" to rank {channel.destination}{_frames(self.plan, channel)}{compressed}:"
                    f" {shortened(channel.tensor, _NAME)}"
                )
                tooltip = f"channel {channel.number}: {_full(channel.tensor)}"
                yield (
                    element("path", d=f"M{x} {y}H{self.name - 4}", class_="lead"),
                    element(
                        "g",
                        element("title", tooltip),
                        element("circle", cx=x, cy=y, r=3.5, fill="#d1242f"),
                        element("text", text, x=self.name, y=y, class_="sent bold"),
                    ),
                )


def _rows(inspection: Inspection) -> Iterator[_Row]:
    graph, plan = inspection.graph, inspection.plan
    segments = layer_segments(plan) if plan else {}
    cost_of = {cost.layer: cost for cost in inspection.costs}
    running = running_layers(graph)
    drawn = {t.name for t in graph.inputs} | {t.name for layer in running for t in layer.outputs}
    ends = (plan.job.source, plan.job.sink) if plan else ()
    source, sink = ((_Place(rank, None, ALL),) for rank in ends) if ends else ((), ())
    for tensor in graph.inputs:
        yield _Row(tensor.name, "input", (), (tensor,), None, source)
    for layer in running:
        reads = [tensor for tensor in layer.inputs if tensor.name in drawn]
        places = tuple(
            _Place(rank, segment, plan.ranks[rank].turns)
            for rank, segment in segments.get(layer.name, ())
            if plan
        )
        made = plan.made_by_name.get(layer.name) if plan else None
        op = f"{layer.op} by {made.by}" if made and made.by else layer.op
        yield _Row(layer.name, op, reads, layer.outputs, cost_of[layer.name], places)
    for tensor in graph.outputs:
        yield _Row(tensor.name, "output", (tensor,), (), None, sink)


def _arriving(plan: Plan | None, rows: Sequence[_Row]) -> dict[int, list[Channel]]:
    """Return the channels that end at a row, by the row's index: at the rank's first reader."""
    first: dict[tuple[str, int], int] = {}
    for index, row in enumerate(rows):
        for tensor in row.reads:
            for rank in row.ranks:
                first.setdefault((tensor.name, rank), index)
    arriving: dict[int, list[Channel]] = {}
    for channel in plan.channels if plan else ():
        reader = first.get((channel.tensor, channel.destination))
        if reader is not None:  # else it only tells a segment that there is a frame
            arriving.setdefault(reader, []).append(channel)
    return arriving


def _tooltip(row: _Row) -> Iterator[str]:
    yield f"{_full(row.name)}: {_full(row.op)}"
    places = [
        f"rank {place.rank}"
        f"{f', segment {place.segment}' if place.segment is not None else ''}"
        f"{f', frames {place.turns}' if place.turns != ALL else ''}"
        for place in row.places
    ]
    yield from first_of(places, _MAX_LINES, "and {} other ranks")
    for word, tensors in (("reads", row.reads), ("makes", row.makes)):
        for tensor in tensors:
            yield f"{word} {_full(tensor.name)} {shape_text(tensor)}"
    if row.cost is not None:
        macs = "unknown" if row.cost.macs is None else f"{row.cost.macs:,}"
        yield f"{macs} MACs, {row.cost.parameters:,} parameters"


def _tensor_lines(
    tensor: AnyTensor, start: _Row, lane: int, readers: Sequence[_Row]
) -> Iterator[Markup]:
    whole = _line_tooltip(tensor, start, readers)
    local = crossing = 0
    for reader in readers:
        crosses = reader.ranks != start.ranks
        own = _line_tooltip(tensor, start, [reader])
        if start.x != lane != reader.x and reader.y - start.y < 2 * ROW:
            path = f"M{start.x} {start.y}{_bend(start.x, reader.x, reader.y)}"
            yield _line(path, start.colour, crosses, own)
            continue
        leaves = reader.y if reader.x == lane else reader.y - ROW
        if reader.x != lane:
            path = f"M{lane} {leaves}{_bend(lane, reader.x, reader.y)}"
            yield _line(path, start.colour, crosses, own)
        if crosses:
            crossing = max(crossing, leaves)
        else:
            local = max(local, leaves)
    stem = f"M{start.x} {start.y}"
    if start.x != lane:
        stem += _bend(start.x, lane, start.y + ROW)
    if local:
        yield _line(f"{stem}V{local}", start.colour, False, whole)
    if crossing > local:
        yield _line(f"{f'M{lane} {local}' if local else stem}V{crossing}", "", True, whole)


def _bend(x: int, to_x: int, to_y: int) -> str:
    """Return a curve from one row's middle to the next's."""
    turn = to_y - ROW // 2
    return f"C{x} {turn} {to_x} {turn} {to_x} {to_y}"


def _line(path: str, colour: str, crosses: bool, tooltip: str) -> Markup:
    title = element("title", tooltip)
    if crosses:
        return element("path", title, d=path, class_="line cross")
    return element("path", title, d=path, class_="line local", stroke=colour)


def _line_tooltip(tensor: AnyTensor, maker: _Row, readers: Sequence[_Row]) -> str:
    size = "size unknown" if tensor.nbytes is None else size_of(tensor)
    ways = []
    for reader in readers:
        ways.append(f"{_full(maker.name)} to {_full(reader.name)}")
        if maker.ranks != reader.ranks:
            ranks = ("|".join(map(str, row.ranks)) for row in (maker, reader))
            ways[-1] += ", rank {} to rank {}".format(*ranks)
    lines = first_of(ways, _MAX_LINES, "and to {} others")
    return "\n".join([f"{_full(tensor.name)} {shape_text(tensor)}, {size}", *lines])


def _cut_tooltip(cut: Cut, share_of: str) -> str:
    if cut.obstacle:
        return f"the model cannot be cut here: {_full(cut.obstacle)}"
    names = [f"  {_full(tensor.name)}, {size_of(tensor)}" for tensor in cut.tensors]
    return "\n".join(
        (
            f"a cut here would send {size_of(cut)} per frame:",
            *first_of(names, _MAX_LINES, "  and {} more"),
            f"{share_text(cut.share)} of the {share_of} and {share_text(cut.parameter_share)}"
            " of the parameters are above it",
        )
    )


def _frames(plan: Plan, channel: Channel) -> str:
    """Return in how many frames a channel carries its tensor, if not in all."""
    needed = plan.job.turns_of_reader(channel.destination, channel.tensor)
    share = needed.shared_with(plan.job.turns_of_maker(channel.source, channel.tensor))
    return "" if share == 1 else f", {share.numerator} of {share.denominator} frames"


def _legend(inspection: Inspection) -> tuple[list[Markup], int, int]:
    """Return the table of the ranks, with their colours and a bar for the share of each.

    Then the height at which the rows begin, and the width.
    """
    plan = inspection.plan
    if plan is None:
        return [], 98, 0
    costs = busy_ranks(plan, inspection.ranks)
    parts, end = table_texts(rank_table("", plan, costs), MARGIN + 22, 84)
    most = max((cost.share for cost in costs), default=0) or 1
    for number, cost in enumerate(costs, 1):
        y, colour = 84 + ROW * number, _colour(cost.rank)
        parts.append(bar(MARGIN, y, 14, 14, rx=3, fill=colour))
        parts.append(bar(end, y, round(_BAR * cost.share / most), 8, fill=colour))
    return parts, 98 + ROW * (len(costs) + 1), end + _BAR


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


def _full(name: str) -> str:
    return shortened(name, _TOOLTIP)
