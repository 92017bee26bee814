"""What engines make of models as a picture: the graph before and after, side by side.

A block has layers of the file at the left and what runs in their place at the right. Blocks stand
in the order in which the nodes run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.commands.inspect.fusions import (
    ADDED,
    DROPPED,
    FOLDED,
    FUSED,
    KEPT,
    REPLACED,
    SPLIT,
    STORED,
    Group,
)
from rankslice.commands.inspect.inside import Inside
from rankslice.commands.inspect.internals import Built, Internals, Node as LiteRtNode
from rankslice.commands.inspect.lanes import (
    ROW,
    Row,
    assign_lanes,
    column_width,
    tensor_path,
    text_width,
)
from rankslice.commands.inspect.optimised import FILE, Optimised
from rankslice.commands.output import shortened
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.templates import render_markup
from rankslice.framework.quantities import share_text

_MARGIN, _GAP = 20, 6
"""Around the picture, and between blocks; this and all other lengths are pixels."""
_BAR = 90
_NAME, _OPERATOR, _TITLE, _TOOLTIP = 34, 34, 90, 300
"""Most letters of each."""
_MANY = 300
"""Layers from which those of a block share a row."""
_MOST_ROWS = 60
"""Rows of a block; what is beyond shares one."""
_MOST_FOLDED = 6
_TAKEN = "delegated"
"""What became of the operators that a delegate of LiteRT's has taken."""

_COLOURS = {
    KEPT: "#6b7480",
    REPLACED: "#7a5fc0",
    FUSED: "#3574c4",
    _TAKEN: "#3574c4",
    SPLIT: "#1d8a7c",
    ADDED: "#c4701f",
    FOLDED: "#9aa3ad",
    DROPPED: "#9aa3ad",
}
_PROVIDER_COLOURS = ("#4b647d", "#1d8a7c", "#b5446e", "#6f7a1c", "#96532f")


@dataclass(frozen=True, slots=True)
class _Cell:
    """A layer or a node, or several that share a row."""

    name: str
    op: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    where: str = ""
    """What runs it; empty for layers of the file."""
    share: float | None = None
    """Of the time of all nodes."""
    details: tuple[str, ...] = ()
    """More lines for the tooltip."""
    stands_for: int = 1
    """How many layers or nodes share the row."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Layers, and what runs in their place."""

    kind: str
    before: tuple[_Cell, ...]
    after: tuple[_Cell, ...]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A model before and after, before anything is placed."""

    title: str
    subtitle: str
    headings: tuple[str, str]
    """Of the left and the right side."""
    blocks: tuple[_Block, ...]


@dataclass(frozen=True, slots=True)
class _PlacedCell:
    x: int
    y: int
    name: str
    op: str
    where: str
    colour: str
    share: str
    bar: int
    tooltip: str


@dataclass(frozen=True, slots=True)
class _Side:
    """A column of the picture: layers or nodes, and the tensors between them."""

    name: int
    op: int
    where: int
    bar: int
    heading: str
    x: int
    cells: tuple[_PlacedCell, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _PlacedBlock:
    y: int
    height: int
    kind: str
    colour: str
    label: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """A model as the template draws it; its texts are still to be escaped."""

    title: str
    subtitle: str
    begin: int
    width: int
    height: int
    top: int
    middle: int
    """Where what became of layers is written."""
    legend: tuple[tuple[int, str, str], ...]
    """Where, in which colour, what."""
    sides: tuple[_Side, _Side]
    blocks: tuple[_PlacedBlock, ...]


def picture_of_inside(found: Sequence[Inside]) -> str:
    """Return models before and after as an SVG document; the same bytes for the same values.

    Raises:
        RankSliceError: LiteRT has compiled a model and does not tell which operators are where.
    """
    pictures: list[_Picture] = []
    for inside in found:
        begin = sum(picture.height for picture in pictures)
        pictures.append(_picture(_drawing(inside), begin))
    return render_markup(
        "before-after.svg.j2",
        pictures=pictures,
        width=max(picture.width for picture in pictures),
        height=sum(picture.height for picture in pictures),
    )


def _drawing(inside: Inside) -> _Drawing:
    title = shortened(inside.file, _TITLE)
    if inside.rank is not None:
        title = f"rank {inside.rank}: {title}"
    if inside.onnxruntime is not None:
        return _of_onnxruntime(inside.onnxruntime, title)
    assert inside.litert is not None
    return _of_litert(inside.litert, title)


def _of_onnxruntime(found: Optimised, title: str) -> _Drawing:
    most = 1 if len(found.before) > _MANY else _MOST_ROWS
    blocks = []
    for group in found.groups:
        if group.kind != STORED:
            before = [_layer(found, number) for number in group.before]
            after = [_node(found, number) for number in group.after]
            blocks.append((group, _Block(group.kind, _rows(before, most), _rows(after))))
    stored = sum(len(group.before) for group in found.groups if group.kind == STORED)
    levels = [f"{stage.level} {len(stage.nodes)}" for stage in found.stages if stage.level != FILE]
    timed = f", time: medians of {frames_text(found.frames)} of zeros" if found.frames else ""
    note = f" ({stored} of type Constant are not drawn)" if stored else ""
    return _Drawing(
        title=title,
        subtitle=f"{len(found.before)} layers{note}; nodes by level: {', '.join(levels)}{timed}",
        headings=(
            f"{len(found.before)} layers in the file",
            f"{len(found.after)} nodes of {found.runtime}",
        ),
        blocks=tuple(_in_order(blocks)),
    )


def _layer(found: Optimised, number: int) -> _Cell:
    layer = found.before[number]
    return _Cell(layer.name, layer.op, layer.inputs, layer.outputs)


def _node(found: Optimised, number: int) -> _Cell:
    node, ran = found.after[number], found.ran[number]
    time = () if ran.microseconds is None else (f"{ran.microseconds:,.0f} us",)
    where = ran.provider or "?"
    share = found.share(number)
    return _Cell(node.name or node.op, node.op, node.inputs, node.outputs, where, share, time)


def _in_order(blocks: Sequence[tuple[Group, _Block]]) -> Iterator[_Block]:
    """Yield blocks with nodes in their order, and the others before what comes after them."""
    gone = sorted((group.before[0], block) for group, block in blocks if not group.after)
    gone.reverse()
    folded = [cell for group, block in blocks if group.kind == FOLDED for cell in block.before]
    if folded:
        # Their results are weights, of which none are drawn.
        yield _Block(
            FOLDED, _rows([replace(c, reads=(), makes=()) for c in folded], _MOST_FOLDED), ()
        )
    for group, block in blocks:
        if group.after:
            first = min(group.before, default=-1)
            while gone and gone[-1][0] < first:
                yield from _unless_folded(gone.pop()[1])
            yield block
    for _, block in reversed(gone):
        yield from _unless_folded(block)


def _unless_folded(block: _Block) -> Iterator[_Block]:
    if block.kind != FOLDED:
        yield block


def _of_litert(found: Internals, title: str) -> _Drawing:
    built = found.delegated
    if built is None:
        what = "cannot draw what LiteRT compiles: it does not report which operators run where"
        raise RankSliceError(Mistake("--svg", what, "leave out --svg, or --accelerator"))
    plain = {node.number: node for node in found.plain.nodes}
    nodes = {node.number: node for node in built.nodes}
    most = 1 if len(plain) > _MANY else _MOST_ROWS
    blocks = []
    for number in built.execution_plan:
        node = nodes[number]
        taken = [plain[each] for each in node.replaces or (number,) if each in plain]
        where = found.by if node.replaces else "LiteRT's kernels"
        kind = _TAKEN if node.replaces else KEPT
        after = (_litert_cell(node, built, where),)
        before = [_litert_cell(each, found.plain, "") for each in taken]
        blocks.append(_Block(kind, _rows(before, most), after))
    return _Drawing(
        title=title,
        subtitle=f"{found.runtime}; {found.by} replaces the operators that it supports",
        headings=(
            f"{len(plain)} operators in the file",
            f"{len(built.execution_plan)} nodes in the execution plan",
        ),
        blocks=tuple(blocks),
    )


def _litert_cell(node: LiteRtNode, built: Built, where: str) -> _Cell:
    names = {tensor.number: tensor.name for tensor in built.tensors}
    made = [names.get(number, "") for number in node.outputs]
    return _Cell(
        name=f"{node.number} {made[0] if made else ''}".strip(),
        op=node.name,
        reads=tuple(map(str, node.inputs)),
        makes=tuple(map(str, node.outputs)),
        where=where,
    )


def _rows(cells: Sequence[_Cell], most: int = _MOST_ROWS) -> tuple[_Cell, ...]:
    """Return a row per cell, the last one for all that are too many."""
    if len(cells) <= most:
        return tuple(cells)
    shown, rest = cells[: most - 1], cells[most - 1 :]
    made = frozenset(name for cell in rest for name in cell.makes)
    counts = Counter(cell.op for cell in rest)
    ops = [f"{count} x {op}" if count > 1 else op for op, count in counts.items()]
    shared = _Cell(
        name=f"{rest[0].name} to {rest[-1].name}",
        op=" + ".join(ops),
        reads=tuple(name for cell in rest for name in cell.reads if name not in made),
        makes=tuple(name for cell in rest for name in cell.makes),
        where=rest[0].where,
        details=tuple(f"{cell.name}: {cell.op}" for cell in rest),
        stands_for=len(rest),
    )
    return (*shown, shared)


def _picture(drawing: _Drawing, begin: int) -> _Picture:
    top = 118
    placed, tops = _placed_blocks(drawing.blocks, top + 18)
    before, after = (
        [
            (cell, tops[number] + ROW * index)
            for number, block in enumerate(drawing.blocks)
            for index, cell in enumerate(block.before if side == 0 else block.after)
        ]
        for side in (0, 1)
    )
    providers = list(dict.fromkeys(cell.where for cell, _ in after))
    colours = dict(zip(providers, cycle(_PROVIDER_COLOURS), strict=False))
    left = _side(before, _MARGIN, drawing.headings[0], {})
    middle = left.where + 8
    right = _side(after, middle + 90, drawing.headings[1], colours)
    legend = tuple(_legend(drawing.blocks, [cell for cell, _ in after], colours))
    width = max(right.bar + _BAR + 70, legend[-1][0] + 200 if legend else 0) + _MARGIN
    bottom = max((block.y + block.height for block in placed), default=top)
    return _Picture(
        title=drawing.title,
        subtitle=drawing.subtitle,
        begin=begin,
        width=width,
        height=bottom + 2 * _MARGIN,
        top=top,
        middle=middle,
        legend=legend,
        sides=(left, right),
        blocks=placed,
    )


def _placed_blocks(
    blocks: Sequence[_Block], start: int
) -> tuple[tuple[_PlacedBlock, ...], list[int]]:
    """Return the blocks, and where the middle of each one's first row is."""
    placed, tops = [], []
    y = start
    for block in blocks:
        height = ROW * max(len(block.before), len(block.after))
        tops.append(y + ROW // 2)
        placed.append(_PlacedBlock(y, height, block.kind, _COLOURS[block.kind], _label(block)))
        y += height + _GAP
    return tuple(placed), tops


def _label(block: _Block) -> str:
    return "" if block.kind == KEPT else block.kind


def _side(
    cells: Sequence[tuple[_Cell, int]], x: int, heading: str, colours: Mapping[str, str]
) -> _Side:
    made: set[str] = set()
    rows = []
    for cell, _ in cells:
        rows.append(Row(tuple(name for name in cell.reads if name in made), cell.makes))
        made.update(cell.makes)
    lanes = assign_lanes(rows)
    xs = [x + 8 + lanes.lane * number for number in lanes.rows]
    name = x + 8 + lanes.width + 10
    op = name + column_width((cell.name for cell, _ in cells), _NAME, 4)
    where = op + column_width((cell.op for cell, _ in cells), _OPERATOR, 4)
    bar = where + (column_width((cell.where for cell, _ in cells), _NAME, 4) if colours else 0)
    most = max((cell.share or 0 for cell, _ in cells), default=0) or 1
    readers: dict[str, list[tuple[int, int]]] = {}
    for row, own, (_, y) in zip(rows, xs, cells, strict=True):
        for each in dict.fromkeys(row.reads):
            readers.setdefault(each, []).append((own, y))
    lines = [
        tensor_path(own, y, x + 8 + lanes.lane * lanes.tensors[tensor], readers[tensor])
        for row, own, (_, y) in zip(rows, xs, cells, strict=True)
        for tensor in row.makes
        if tensor in readers
    ]
    placed = [
        _PlacedCell(
            x=own,
            y=y,
            name=shortened(cell.name, _NAME),
            op=shortened(cell.op, _OPERATOR),
            where=shortened(cell.where, _NAME),
            colour=colours.get(cell.where, _PROVIDER_COLOURS[0]),
            share="" if cell.share is None else share_text(cell.share),
            bar=0 if not cell.share else max(1, round(_BAR * cell.share / most)),
            tooltip="\n".join(_tooltip(cell)),
        )
        for own, (cell, y) in zip(xs, cells, strict=True)
    ]
    return _Side(name, op, where, bar, heading, x, tuple(placed), tuple(lines))


def _tooltip(cell: _Cell) -> Iterator[str]:
    yield f"{shortened(cell.name, _TOOLTIP)}: {shortened(cell.op, _TOOLTIP)}"
    if cell.where:
        yield f"on {shortened(cell.where, _TOOLTIP)}"
    for text in cell.details[:_MOST_ROWS]:
        yield shortened(text, _TOOLTIP)


def _legend(
    blocks: Sequence[_Block], nodes: Sequence[_Cell], colours: Mapping[str, str]
) -> Iterator[tuple[int, str, str]]:
    """Yield what the colours of blocks and of nodes mean."""
    kinds: Counter[str] = Counter()
    for block in blocks:
        kinds[block.kind] += 1 if block.after else sum(cell.stands_for for cell in block.before)
    texts = [(_COLOURS[kind], f"{kind} ({kinds[kind]})") for kind in _COLOURS if kinds[kind]]
    for where, colour in colours.items():
        own = [cell for cell in nodes if cell.where == where]
        share = sum(cell.share or 0 for cell in own)
        time = f", {share_text(share)} of the time" if share else ""
        texts.append((colour, f"on {shortened(where)}: {len(own)}{time}"))
    x = _MARGIN
    for colour, text in texts:
        yield x, colour, text
        x += 22 + text_width(text) + 22
