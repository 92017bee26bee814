"""A model as a picture: a row per layer, lines for tensors, bars for what it costs.

The layers stand one below the other in the order in which they run, as in the table that
``inspect`` prints; so a cut is a place between two rows, and what would cross it are the lines that
pass there.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rankslice.backend.runtime.job import ALL, Channel, Rank, Turns
from rankslice.commands.inspect.inspect import Inspection
from rankslice.commands.inspect.lanes import (
    ROW,
    Row,
    assign_lanes,
    bend,
    column_width,
    stem,
    text_width,
)
from rankslice.commands.inspect.rank_costs import RankCost, busy_ranks, layer_segments
from rankslice.commands.inspect.show import DEFAULT_CUTS, are_open, shape_text, size_text
from rankslice.commands.output import shortened
from rankslice.framework.files.templates import render_markup
from rankslice.framework.graph import AnyTensor, Tensor
from rankslice.framework.plan import Plan
from rankslice.framework.quantities import bytes_text, count_text, share_text
from rankslice.frontend.costs.costs import LayerCost
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.costs.liveness import running_layers

_MARGIN = 20
_BAR = 90
_NAME, _OPERATOR, _SHAPE, _TITLE, _KEY = 48, 20, 24, 90, 30
"""Most letters of each."""
_TOOLTIP = 300
_MAX_TOLD = 8
_MOST_PLACES = 3
"""How many of the ranks in turn are named beside a row."""
_RANK_COLOURS = (
    *("#3574c4", "#c4701f", "#1d8a7c", "#7a5fc0", "#b5446e", "#6f7a1c", "#4b7186", "#96532f"),
)
_LIGHT_SOFT = (0.46, 0.5)
_GOLDEN_ANGLE = 0.381966
_PLAIN_COLOUR = "#4b647d"


@dataclass(frozen=True, slots=True)
class _Place:
    """A rank on which a row runs, in the frames that it handles there."""

    rank: int
    segment: int | None
    turns: Turns


@dataclass(frozen=True, slots=True)
class _Item:
    """A layer that runs, or a model's input or output, before anything is placed."""

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

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks on which it runs."""
        return tuple(place.rank for place in self.places)

    @property
    def colour(self) -> str:
        """The colour of the first rank."""
        return _colour(self.ranks[0] if self.places else None)


@dataclass(frozen=True, slots=True)
class _Tint:
    """The part of a row's background that has a rank's colour, as wide as its share of frames."""

    x: int
    width: int
    colour: str


@dataclass(frozen=True, slots=True)
class _Dot:
    """One row of the picture."""

    kind: str
    y: int
    x: int
    colour: str
    filled: bool
    tints: tuple[_Tint, ...]
    place: str
    """``rank.segment`` where a segment starts, ``1.0|2.0`` if ranks take turns; else empty."""
    name: str
    op: str
    shape: str
    macs: str
    macs_width: int
    tooltip: str


@dataclass(frozen=True, slots=True)
class _Line:
    """One tensor on its way to one reader."""

    path: str
    colour: str
    crosses: bool
    tooltip: str


@dataclass(frozen=True, slots=True)
class _Border:
    """The place between two rows: what would be sent if the model were cut there."""

    y: int
    width: int
    text: str
    notable: bool
    tooltip: str


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A row that says what comes from another rank."""

    y: int
    x: int
    text: str
    colour: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class _LegendRow:
    """What one rank does."""

    y: int
    colour: str
    cells: tuple[str, ...]
    x: int
    """Where its bar begins."""
    width: int


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


@dataclass(frozen=True, slots=True)
class _Picture:
    """A route as the template draws it, placed and worded; its texts are still to be escaped."""

    title: str
    subtitle: str
    begin: int
    """Height of what stands above it."""
    width: int
    height: int
    columns: _Columns
    top: int
    """Where the rows' headings stand."""
    legend_columns: tuple[tuple[int, str], ...]
    legend: tuple[_LegendRow, ...]
    share_of: str
    """What the share above a cut is measured in."""
    dots: tuple[_Dot, ...]
    lines: tuple[_Line, ...]
    borders: tuple[_Border, ...]
    arrivals: tuple[_Arrival, ...]


def picture_of(inspection: Inspection) -> str:
    """Return a model as an SVG document; the same bytes for the same inspection.

    Layers that run for every frame are drawn, in the graph's order. With a plan they have the
    colours of their ranks, and a row before each arrival from another rank says how much comes.
    A second route has a picture of its own below.
    """
    titles = ("", ", in a surge")
    pictures: list[_Picture] = []
    for title, route in zip(titles, inspection.routes, strict=False):
        begin = sum(picture.height for picture in pictures)
        pictures.append(_picture(route, title, begin))
    return render_markup(
        "picture.svg.j2",
        pictures=pictures,
        width=max(picture.width for picture in pictures),
        height=sum(picture.height for picture in pictures),
    )


def _picture(inspection: Inspection, addition: str, begin: int) -> _Picture:
    items = _items(inspection)
    rows = [Row(_names(item.reads), _names(item.makes)) for item in items]
    lanes = assign_lanes(rows)
    columns = _columns(items, lanes.width)
    legend_columns, legend = _legend(inspection)
    legend_end = legend_columns[-1][0] + 100 if legend_columns else 0
    width = max(columns.end, legend_end) + _MARGIN
    top = 104 + (len(legend) + 1) * ROW * bool(legend)
    arriving = _arriving(inspection.plan, items)
    heights = _heights(items, arriving, top + 18)
    xs = [columns.lanes + lane * lanes.lane for lane in lanes.rows]
    tensor_xs = {name: columns.lanes + lane * lanes.lane for name, lane in lanes.tensors.items()}
    return _Picture(
        title=shortened(inspection.graph.name, _TITLE) + addition,
        begin=begin,
        subtitle=_subtitle(inspection),
        width=width,
        height=heights[-1] + ROW + _MARGIN if heights else top + _MARGIN,
        columns=columns,
        top=top,
        legend_columns=legend_columns,
        legend=legend,
        share_of="MACs" if inspection.totals.macs else "layers",
        dots=tuple(_dots(items, xs, heights, width)),
        lines=tuple(_lines(items, xs, heights, tensor_xs)),
        borders=tuple(_borders(inspection, items, heights)),
        arrivals=tuple(_arrivals(inspection.plan, arriving, heights, tensor_xs)),
    )


def _items(inspection: Inspection) -> list[_Item]:
    """Return what is drawn, from top to bottom."""
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


def _heights(
    items: Sequence[_Item], arriving: Mapping[int, Sequence[Channel]], start: int
) -> list[int]:
    """Return where each row's middle is; a row below another for each channel that ends there."""
    heights = []
    y = start
    for index, _ in enumerate(items):
        y += ROW * len(arriving.get(index, ()))
        heights.append(y)
        y += ROW
    return heights


def _dots(
    items: Sequence[_Item], xs: Sequence[int], heights: Sequence[int], width: int
) -> Iterator[_Dot]:
    most = max((item.macs or 0 for item in items), default=0) or 1
    before = ""
    for item, x, y in zip(items, xs, heights, strict=True):
        place = _places_text(item)
        starts = place != before
        before = place
        macs = item.macs or 0
        yield _Dot(
            kind=item.kind,
            y=y,
            x=x,
            colour=item.colour,
            filled=bool(macs),
            tints=tuple(_tints(item, width)) if item.kind == "layer" else (),
            place=place if starts else "",
            name=shortened(item.name, _NAME),
            op=shortened(item.op, _OPERATOR),
            shape=shortened(_shape(item), _SHAPE),
            macs="?" if item.macs is None else count_text(macs) if macs else "",
            macs_width=max(1, round(_BAR * macs / most)) if macs else 0,
            tooltip="\n".join(_tooltip(item)),
        )


def _places_text(item: _Item) -> str:
    """Return where a layer runs: ``1.0``, ``1.0|2.0`` or ``1.0|2.0|3.0|+5``; else nothing."""
    texts = [f"{each.rank}.{each.segment}" for each in item.places if each.segment is not None]
    more = len(texts) - _MOST_PLACES
    return "|".join([*texts[:_MOST_PLACES], *([f"+{more}"] if more > 0 else [])])


def _tints(item: _Item, width: int) -> Iterator[_Tint]:
    if not item.places:
        yield _Tint(0, width, item.colour)
    handled = Fraction(0)
    for place in item.places:
        begin = round(width * handled)
        handled += place.turns.share
        yield _Tint(begin, round(width * handled) - begin, _colour(place.rank))


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


def _lines(
    items: Sequence[_Item], xs: Sequence[int], heights: Sequence[int], tensor_xs: Mapping[str, int]
) -> Iterator[_Line]:
    """Yield a stem for each tensor, dashed where it leads to other ranks only, and branches."""
    readers: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        for tensor in item.reads:
            readers.setdefault(tensor.name, []).append(index)
    for start, item in enumerate(items):
        for tensor in item.makes:
            if tensor.name in readers:
                ends = [_End(items[end], xs[end], heights[end]) for end in readers[tensor.name]]
                begin = _End(item, xs[start], heights[start])
                yield from _tensor_lines(tensor, begin, tensor_xs[tensor.name], ends)


@dataclass(frozen=True, slots=True)
class _End:
    """Where a line begins or ends."""

    item: _Item
    x: int
    y: int


def _tensor_lines(
    tensor: Tensor, start: _End, lane: int, readers: Sequence[_End]
) -> Iterator[_Line]:
    colour = start.item.colour
    whole = _line_tooltip(tensor, start.item, [reader.item for reader in readers])
    local = crossing = 0
    for reader in readers:
        crosses = reader.item.ranks != start.item.ranks
        own = _line_tooltip(tensor, start.item, [reader.item])
        if start.x != lane != reader.x and reader.y - start.y < 2 * ROW:
            path = f"M{start.x} {start.y}{bend(start.x, reader.x, reader.y)}"
            yield _Line(path, colour, crosses, own)
            continue
        leaves = reader.y if reader.x == lane else reader.y - ROW
        if reader.x != lane:
            path = f"M{lane} {leaves}{bend(lane, reader.x, reader.y)}"
            yield _Line(path, colour, crosses, own)
        if crosses:
            crossing = max(crossing, leaves)
        else:
            local = max(local, leaves)
    if local:
        yield _Line(f"{stem(start.x, start.y, lane)}V{local}", colour, False, whole)
    if crossing > local:
        begin = f"M{lane} {local}" if local else stem(start.x, start.y, lane)
        yield _Line(f"{begin}V{crossing}", colour, True, whole)


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


def _borders(
    inspection: Inspection, items: Sequence[_Item], heights: Sequence[int]
) -> Iterator[_Border]:
    row = {item.name: index for index, item in enumerate(items) if item.kind == "layer"}
    notable = {cut.after for cut in notable_cuts(inspection.cuts, DEFAULT_CUTS)}
    most = max((cut.nbytes or 0 for cut in inspection.cuts), default=0) or 1
    for cut in inspection.cuts:
        yield _Border(
            y=heights[row[cut.after]] + ROW // 2,
            width=0 if cut.obstacle else max(1, round(_BAR * (cut.nbytes or 0) / most)),
            text="no cut" if cut.obstacle else f"{_cut_size(cut)}, {share_text(cut.share)}",
            notable=cut.after in notable,
            tooltip=_border_tooltip(cut, "MACs" if inspection.totals.macs else "layers"),
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


def _arrivals(
    plan: Plan | None,
    arriving: Mapping[int, Sequence[Channel]],
    heights: Sequence[int],
    tensor_xs: Mapping[str, int],
) -> Iterator[_Arrival]:
    if plan is None:
        return
    tensors = plan.job.tensors
    for index, channels in arriving.items():
        for number, channel in enumerate(channels):
            nbytes = _size_text(tensors[channel.tensor])
            yield _Arrival(
                y=heights[index] - ROW * (len(channels) - number),
                x=tensor_xs[channel.tensor],
                text=f"{nbytes} from rank {channel.source} to rank {channel.destination}"
                f"{_frames(plan, channel)}: {shortened(channel.tensor, _NAME)}",
                colour=_colour(channel.source),
                tooltip=f"channel {channel.number}: {shortened(channel.tensor, _TOOLTIP)}",
            )


def _frames(plan: Plan, channel: Channel) -> str:
    """Return in how many frames a channel carries its tensor, if not in all."""
    needed = plan.job.turns_of_reader(channel.destination, channel.tensor)
    share = needed.shared_with(plan.job.turns_of_maker(channel.source, channel.tensor))
    return "" if share == 1 else f", {share.numerator} of {share.denominator} frames"


def _legend(inspection: Inspection) -> tuple[tuple[tuple[int, str], ...], tuple[_LegendRow, ...]]:
    """Return the headings of the table of ranks, each with its place, and its rows."""
    plan = inspection.plan
    if plan is None:
        return (), ()
    costs = busy_ranks(plan, inspection.ranks)
    in_turn = any(placement.turns != ALL for placement in plan.ranks)
    cells = [_legend_cells(plan.ranks[cost.rank], cost) for cost in costs]
    columns = [
        ("rank", 60),
        ("key", column_width((row["key"] for row in cells), _KEY)),
        *([("frames", column_width((row["frames"] for row in cells), _KEY))] if in_turn else []),
        *(("segments", 80), ("layers", 70), ("MACs", 100), ("share", _BAR + 70)),
        *(("weights", 90), ("receives", 90), ("sends", 90)),
    ]
    words, widths = zip(*columns, strict=True)
    xs = [_MARGIN + 22 + sum(widths[:index]) for index in range(len(widths))]
    most = max((cost.share for cost in inspection.ranks), default=0) or 1
    rows = tuple(
        _LegendRow(
            y=92 + ROW * (number + 1),
            colour=_colour(cost.rank),
            cells=tuple(row[word] for word in words),
            x=xs[words.index("share")] + 60,
            width=round(_BAR * cost.share / most),
        )
        for number, (cost, row) in enumerate(zip(costs, cells, strict=True))
    )
    return tuple(zip(xs, words, strict=True)), rows


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
