"""Layers that are split: each part computes a box of the results, and is a layer of its own.

What a part needs of a tensor is cut out where the tensor is made, and put together where it is
read. So all that crosses between ranks are ordinary tensors, and all layers are ordinary layers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TypeVar

from rankslice.framework.errors import (
    CollectedMistakes,
    Mistake,
    RankSliceError,
    raise_mistakes,
)
from rankslice.framework.graph import (
    Box,
    Crop,
    Graph,
    Join,
    Layer,
    Making,
    PartOf,
    StoredPart,
    Sum,
    Tensor,
    Weight,
    dtype_bits,
    unique_name,
    values_bytes,
)
from rankslice.framework.mapping import Assignment, Block
from rankslice.framework.quantisers import copied_layers, is_dequantiser
from rankslice.framework.wording import joined, listed, quoted
from rankslice.frontend.rewriting.boxes import (
    contains,
    hull,
    intersection,
    sizes,
    text_of,
    whole,
    with_ends,
    within,
)
from rankslice.frontend.rewriting.made_layers import GraphRewriting, Place, Rewritten, made_layer
from rankslice.frontend.rewriting.regions import (
    Divided,
    Form,
    FormOf,
    LayerPart,
    Sliced,
    result_shape,
    shape_of,
)

_INPUTS = ("inputs",)
"""Group of the layers that cut model inputs: parts must not wait for each other."""


def split_layers(
    graph: Graph, assignment: Assignment, form_of: FormOf, channels_last: bool
) -> Rewritten:
    """Return the graph with the parts of the split layers instead of these.

    Raises:
        RankSliceError: no layer of a block can be split as wanted, sizes are open or unknown, or it
            keeps something from frame to frame.
    """
    form_of = _known_forms(form_of)
    graph, assignment = _undivided(graph, assignment, form_of)
    inside = {name for block in assignment.blocks for name in block.layers}
    # Parts send quantised tensors, so each reader has dequantisers of its own.
    inside -= {layer.name for layer in graph.layers if is_dequantiser(layer)}
    copied = copied_layers(graph, {*assignment.entry_of, *inside})
    mistakes = CollectedMistakes()
    splits = [
        mistakes.catch(partial(_Split, graph, block, number, form_of, channels_last, copied))
        for number, block in enumerate(assignment.blocks)
    ]
    mistakes.raise_all()
    return _Splitting(graph, assignment, [*filter(None, splits)], form_of, copied).result()


def _undivided(graph: Graph, assignment: Assignment, form_of: FormOf) -> tuple[Graph, Assignment]:
    """Return the graph with a crop for each result of those layers of blocks that have several."""
    inside = {name for block in assignment.blocks for name in block.layers}
    names = graph.names
    crops: dict[str, list[Layer]] = {}
    for layer in graph.layers:
        form = form_of(layer) if layer.name in inside and len(layer.outputs) > 1 else None
        if isinstance(form, Divided) and all(tensor.shape for tensor in layer.outputs):
            source = layer.operands[form.operand]
            assert isinstance(source, Tensor)
            for result, box in zip(layer.outputs, form.boxes(layer), strict=True):
                name = unique_name(f"{layer.name} {result.name}", names)
                crop = made_layer(name, layer.name, [source], result, Crop(box))
                crops.setdefault(layer.name, []).append(crop)
    layers = (crop for layer in graph.layers for crop in crops.get(layer.name, [layer]))
    graph = replace(graph, layers=tuple(layers))
    named = {name: tuple(crop.name for crop in made) for name, made in crops.items()}
    blocks = tuple(
        replace(b, layers=tuple(n for name in b.layers for n in named.get(name, (name,))))
        for b in assignment.blocks
    )
    return graph, replace(assignment, blocks=blocks)


def _known_forms(form_of: FormOf) -> FormOf:
    """Return the forms of layers, of crops too; none where shapes are unknown."""
    forms: dict[str, Form | None] = {}

    def form(layer: Layer) -> Form | None:
        if layer.name not in forms:
            is_known = all(t.shape is not None for t in (*layer.inputs, *layer.outputs[:1]))
            forms[layer.name] = form_of(layer) if is_known else None
            if isinstance(layer.making, Crop):
                forms[layer.name] = Sliced(tuple((begin, 1) for begin, _ in layer.making.box))
        return forms[layer.name]

    return form


class _Split:
    """How the layers of one block are split."""

    def __init__(
        self,
        graph: Graph,
        block: Block,
        number: int,
        form_of: FormOf,
        channels_last: bool,
        copied: frozenset[str],
    ) -> None:
        self.block, self.number = block, number
        self._form_of = form_of
        self._channels_last = channels_last
        self._copied = copied
        self._layers = [*self._inside(graph)]
        self._where = block.where
        if block.has_sizes and block.by == "outputs":
            self.block = self._within_groups()
        self.count = len(self.block.parts)
        self._read = {t.name for layer in graph.layers for t in layer.inputs}
        self._read |= {tensor.name for tensor in graph.outputs}
        raise_mistakes(self._mistakes(graph))
        self._units = self._heads() if block.by == "heads" else 0
        self.axis: dict[str, int] = {}
        """By tensor that is split, of those that the block makes: the axis."""
        self.sums: dict[str, tuple[int, int]] = {}
        """By tensor that is made as a sum: the operand, and its axis, over which it is summed."""
        self.whole: list[str] = []
        """Names of the layers that cannot be split."""
        self._decide()
        if not (self.axis or self.sums) or (block.by == "heads" and not self._units):
            found = f"{listed(self.whole or block.layers)} cannot be split by {block.by}"
            why = "it mixes what would be split, is too small, or no rule for it is known"
            hint = f"{why}: choose other layers, or split by something else"
            raise RankSliceError(Mistake(self._where, found, hint))
        self.stage: dict[str, int] = {}
        """By layer: how often the parts exchange something before it."""
        self._count_stages()
        self.wanted = [self._wanted(part, graph) for part in range(self.count)]

    def _inside(self, graph: Graph) -> Iterator[Layer]:
        """Yield the layers of the block, and copied ones that read what these make."""
        names, made = {*self.block.layers} - self._copied, set[str]()
        for layer in graph.layers:
            is_between = layer.name in self._copied and any(t.name in made for t in layer.inputs)
            if layer.name in names or is_between:
                made |= {tensor.name for tensor in layer.outputs}
                yield layer

    @property
    def has_exchange(self) -> bool:
        return self.block.by not in ("rows", "columns") or self.block.halo == "exchange"

    def _mistakes(self, graph: Graph) -> Iterator[Mistake]:
        bound = {name: bond.reason for bond in graph.bonds for name in bond.layers}
        for layer in self._layers:
            where = f"{self._where}: layer {quoted(layer.name)}"
            tensors = (*layer.inputs, *self._results(layer))
            if layer.lasting or layer.name in bound:
                found = layer.lasting[0] if layer.lasting else bound[layer.name]
                yield Mistake(where, f"it keeps {found}", "keep it whole, on one key")
            elif any(tensor.is_open or tensor.shape is None for tensor in tensors):
                hint = "give them with --shape, or keep it whole"
                yield Mistake(where, "its sizes are open", hint)

    def _results(self, layer: Layer) -> tuple[Tensor, ...]:
        """Return what somebody reads of what a layer makes."""
        return tuple(tensor for tensor in layer.outputs if tensor.name in self._read)

    def _within_groups(self) -> Block:
        """Return the block with parts that do not cross groups of channels, if there are groups.

        What crosses one is made by two layers.
        """
        layer, *_ = self._layers
        form = self._form_of(layer)
        axis = form.first_axis(layer, "outputs") if form else None
        if form is None or axis is None:
            return self.block
        size = result_shape(layer)[axis]
        ends, groups = self.ends(size), form.groups(layer)
        limits = sorted({*ends, *range(0, size, size // groups)})
        entry_of = {end: entry for end, (entry, _) in zip(ends[1:], self.block.parts, strict=True)}
        parts = tuple(
            (entry_of[next(last for last in ends if last >= end)], end - begin)
            for begin, end in pairwise(limits)
        )
        return replace(self.block, parts=parts)

    def _heads(self) -> int:
        """Return the number of attention heads: the batch of the first product of two results."""
        for layer in self._layers:
            form = self._form_of(layer)
            contracted = form.contracted(layer) if form else None
            shape = result_shape(layer)
            if contracted and len(layer.inputs) > 1 and not layer.weights and len(shape) > 2:
                return shape[-3]
        return 0

    def ends(self, size: int) -> list[int]:
        """Return where the parts of an axis begin, and where the last one ends.

        Raises:
            RankSliceError: sizes of parts are given, and do not fit.
        """
        if self.block.has_sizes:
            return self._exact_ends(size)
        units = self._units if self._units and size % self._units == 0 else size
        total = sum(share for _, share in self.block.parts)
        until = accumulate((share for _, share in self.block.parts), initial=0.0)
        return [round(units * share / total) * (size // units) for share in until]

    def _exact_ends(self, size: int) -> list[int]:
        wanted = [int(share) for _, share in self.block.parts]
        if sum(wanted) < size or sum(wanted[:-1]) >= size:
            found = f"parts of {joined([*map(str, wanted)])} do not fit {size}"
            expected = "expected sizes that leave something for the last part, and not more than it"
            raise RankSliceError(Mistake(self._where, found, expected))
        return [0, *accumulate(wanted[:-1]), size]

    def ends_of(self, size: int, part: int) -> tuple[int, int]:
        ends = self.ends(size)
        return ends[part], ends[part + 1]

    def own(self, tensor: Tensor, part: int) -> Box:
        """Return the box of a split tensor that a part answers for."""
        shape = tensor.shape or ()
        axis = self.axis[tensor.name]
        return with_ends(whole(shape), axis, self.ends_of(shape[axis], part))

    def _fits(self, size: int) -> bool:
        ends = self.ends(size)
        return all(begin < end for begin, end in pairwise(ends))

    def _decide(self) -> None:
        kept: set[str] = set()
        for layer in self._layers:
            names = [tensor.name for tensor in self._results(layer)]
            form = self._form_of(layer) if names == [layer.outputs[0].name] else None
            read = {tensor.name for tensor in layer.inputs}
            is_after = not read.isdisjoint({*kept, *self.sums})
            # What has weights by output can be split again: it reads all of its input anyway.
            starts = self.block.by == "outputs" and form and _has_filters(layer, form)
            # Parts of an image read all of a gate, which is made of the whole image.
            is_gated = self.block.by in ("rows", "columns") and not read.isdisjoint(self.axis)
            may_be_split = form and (not is_after or starts or is_gated)
            uncut = kept if is_gated else set()
            if form is None or not may_be_split or not self._split(layer, form, uncut):
                if layer.name not in self._copied:
                    self.whole.append(layer.origin or layer.name)
                if is_after or not read.isdisjoint(self.axis):
                    kept.update(names)

    def _split(self, layer: Layer, form: Form, uncut: Collection[str]) -> bool:
        """Decide how a layer is split; return whether it is.

        Args:
            uncut: tensors of which each part has to need all.
        """
        name, by = layer.outputs[0].name, self.block.by
        contracted = form.contracted(layer)
        split = {
            number: self.axis[operand.name]
            for number, operand in enumerate(layer.operands)
            if isinstance(operand, Tensor) and operand.name in self.axis
        }
        if contracted and by in ("inputs", "heads"):
            operand, axis = contracted
            if split.get(operand) == axis or (by == "inputs" and not split):
                size = shape_of(layer, operand)[axis]
                if self._fits(size) and form.summand(layer, *self.ends_of(size, 0)):
                    self.sums[name] = contracted
                return name in self.sums
        if contracted and by == "outputs":
            split = {}
        axes = self._first_axes(layer, form)
        if split:
            usual = next(iter(split.values()))
            axes = [*dict.fromkeys((usual, *range(len(result_shape(layer)))))]
        for axis in axes:
            if self._is_split_along(layer, form, axis, split, uncut):
                self.axis[name] = axis
                return True
        return False

    def _first_axes(self, layer: Layer, form: Form) -> Sequence[int]:
        """Return the axis along which the first layers of the block are split, if there is one."""
        by = self.block.by
        wanted = by if by in ("rows", "columns") else "outputs"
        axis = form.first_axis(layer, wanted)
        shape, rank = result_shape(layer), len(result_shape(layer))
        if axis is not None:
            return [axis]
        if by == "heads":
            return [a for a in (1, 2) if rank == 4 and shape[a] == self._units]
        image = "rows columns outputs" if self._channels_last else "outputs rows columns"
        axes = {2: "rows outputs", 3: "batch rows outputs", 4: f"batch {image}"}.get(rank, "")
        return [number for number, name in enumerate(axes.split()) if name == wanted]

    def _is_split_along(
        self,
        layer: Layer,
        form: Form,
        axis: int,
        split: Mapping[int, int],
        uncut: Collection[str],
    ) -> bool:
        shape = result_shape(layer)
        if axis >= len(shape) or not self._fits(shape[axis]):
            return False
        for number in range(self.count):
            ends = self.ends_of(shape[axis], number)
            part = part_of(form, layer, with_ends(whole(shape), axis, ends))
            if part is None or part.usable[axis] == (0, shape[axis]):
                return False
            cut = [
                box[at] != (0, (held.shape or ())[at])
                for operand, at in split.items()
                if (held := layer.operands[operand]) and (box := part.operands.get(operand))
            ]
            if any(
                held and held.name in uncut and part.operands.get(n) != whole(held.shape or ())
                for n, held in enumerate(layer.operands)
            ):
                return False
            # Of attention a part reads some queries, and all keys and values.
            if len(cut) < len(split) or (cut and not any(cut)):
                return False
        return True

    def _wanted(self, part: int, graph: Graph) -> dict[str, Box]:
        """Return the box of each tensor that a part computes."""
        layers = [layer for layer in self._layers if layer.outputs[0].name in self.axis]
        by_name = {layer.outputs[0].name: layer.outputs[0] for layer in layers}
        if self.has_exchange:
            return {name: self.own(tensor, part) for name, tensor in by_name.items()}
        inside = {layer.name for layer in layers}
        read = {t.name for layer in graph.layers if layer.name not in inside for t in layer.inputs}
        read |= {tensor.name for tensor in graph.outputs}
        wanted = {n: self.own(tensor, part) for n, tensor in by_name.items() if n in read}
        for layer in reversed(layers):
            box = wanted.get(layer.outputs[0].name)
            for operand, needed in self.plan(layer, box).needs(layer) if box else ():
                if operand.name in by_name:
                    wanted[operand.name] = hull(wanted.get(operand.name, needed), needed)
        return wanted

    def _count_stages(self) -> None:
        made: dict[str, int] = {}
        for layer in self._layers:
            result = layer.outputs[0]
            operands = [o for o in layer.operands if isinstance(o, Tensor) and o.name in made]
            stages = [made[operand.name] for operand in operands]
            if result.name in self.axis:
                brought = [o for o in operands if not self._has_own(layer, o)]
                stages += [made[operand.name] + 1 for operand in brought]
            if result.name in self.axis or result.name in self.sums or operands:
                self.stage[layer.name] = max(stages, default=0)
                made |= {tensor.name: self.stage[layer.name] for tensor in layer.outputs}

    def _has_own(self, layer: Layer, operand: Tensor) -> bool:
        """Return whether each part has itself what it needs of an operand."""
        if not self.has_exchange or operand.name not in self.axis:
            return operand.name in self.axis
        return all(
            contains(self.own(operand, part), needed)
            for part in range(self.count)
            for held, needed in self.plan(layer, self.own(layer.outputs[0], part)).needs(layer)
            if held == operand
        )

    def plan(self, layer: Layer, box: Box) -> LayerPart:
        plan = part_of(self._form_of(layer), layer, box)
        if plan is None:
            where = f"{self._where}: layer {quoted(layer.name)}"
            found = f"it cannot make the part {text_of(box, result_shape(layer))}"
            raise RankSliceError(Mistake(where, found, "choose other shares, or other layers"))
        return plan

    def summand(self, layer: Layer, part: int) -> tuple[LayerPart, float]:
        """Return how a part makes its summand, and how much of the axis that is."""
        operand, axis = self.sums[layer.outputs[0].name]
        size = shape_of(layer, operand)[axis]
        form = self._form_of(layer)
        begin, end = self.ends_of(size, part)
        plan = form.summand(layer, begin, end) if form else None
        assert plan
        return plan, (end - begin) / size


def _has_filters(layer: Layer, form: Form) -> bool:
    return bool(form.contracted(layer)) or form.groups(layer) > 1


def part_of(form: Form | None, layer: Layer, box: Box) -> LayerPart | None:
    """Return how a layer makes a box; ``None``, too, if a weight cannot be cut so."""
    plan = form.part(layer, box) if form else None
    for operand, needed in plan.needs(layer) if plan else ():
        is_cut = isinstance(operand, Weight) and needed != whole(operand.shape)
        if is_cut and (not (bits := dtype_bits(operand.dtype)) or bits % 8):
            return None
    return plan


@dataclass(frozen=True, slots=True)
class _Reader(Place):
    """A part of a block, which reads something."""

    split: int
    """Number of the block."""
    part: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a part has of a tensor."""

    tensor: Tensor
    at: _Reader
    region: Box
    """What the tensor stands for."""
    usable: Box
    own: Box
    """What it gives to others."""


class _Splitting(GraphRewriting):
    """Makes the parts, and what they exchange."""

    def __init__(
        self,
        graph: Graph,
        assignment: Assignment,
        splits: Sequence[_Split],
        form_of: FormOf,
        copied: frozenset[str],
    ) -> None:
        super().__init__(graph, assignment, {})
        self._splits, self._form_of, self._copied = splits, form_of, copied
        self._pieces: dict[str, list[_Piece]] = {}
        self._weights: dict[tuple[str, Box], Weight] = {}

    def result(self) -> Rewritten:
        split_of = {
            name: split
            for split in self._splits
            for name in split.block.layers
            if name not in self._copied
        }
        for name, split in split_of.items():
            self.entry_of[name] = split.block.parts[-1][0]
        for layer in self.graph.layers:
            of_layer = split_of.get(layer.name)
            name = layer.outputs[0].name if layer.outputs else ""
            if of_layer and name in of_layer.axis:
                self._pieces[name] = [*self._part_layers(layer, of_layer)]
            elif of_layer and name in of_layer.sums:
                self._sum_layers(layer, of_layer)
            else:
                for tensor in layer.inputs:
                    self._join(tensor)
                self.append(layer)
        for tensor in self.graph.outputs:
            self._join(tensor)
        return self.rewritten(self._warnings())

    def _warnings(self) -> Iterator[str]:
        for split in self._splits:
            if split.whole:
                one, other = ("is", "runs") if len(split.whole) == 1 else ("are", "run")
                found = f"{listed(split.whole)} {one} not split by {split.block.by}"
                yield f"{split.block.where}: {found}, and {other} on the last part's key"

    def _readers(self, layer: Layer, split: _Split) -> Iterator[_Reader]:
        group = (split.number, split.stage.get(layer.name, 0))
        for part, (entry, _) in enumerate(split.block.parts):
            yield _Reader(entry, group, split.number, part)

    def _part_layers(self, layer: Layer, split: _Split) -> Iterator[_Piece]:
        tensor = layer.outputs[0]
        for reader in self._readers(layer, split):
            box = split.wanted[reader.part].get(tensor.name)
            if box is None:
                continue
            plan = split.plan(layer, box)
            if isinstance(layer.making, Crop):
                made = self._box(layer.inputs[0], plan.operands[0], reader)
            else:
                made = self._part(layer, plan, reader)
            own = split.own(tensor, reader.part)
            yield _Piece(made, reader, plan.region, plan.usable, own)

    def _part(self, layer: Layer, plan: LayerPart, reader: _Reader, summed: float = 1) -> Tensor:
        """Append a layer that makes a part of what a layer makes; return what it makes.

        Args:
            summed: over how much of what the layer sums up.
        """
        split, is_copy = self._splits[reader.split], layer.name in self._copied
        result = layer.outputs[0]
        dropped = dict(plan.changes).get("without", ())
        operands: list[Tensor | Weight | None] = []
        for number, operand in enumerate(layer.operands):
            if operand is None or (isinstance(dropped, tuple) and number in dropped):
                operands.append(None)
                continue
            box = plan.operands.get(number, whole(operand.shape or ()))
            if isinstance(operand, Weight):
                operands.append(self._cut_weight(operand, box))
            else:
                operands.append(self._box(operand, box, reader))
        shape, full = sizes(plan.region), result.shape or ()
        suffix = text_of(plan.region, full) if is_copy else f"[{reader.part + 1}/{split.count}]"
        tensor = replace(result, name=self.unique(result.name + suffix), shape=shape)
        share = summed * math.prod(shape) / math.prod(full)
        by = "" if is_copy else split.block.by
        made = replace(
            layer,
            name=self.unique(layer.name + suffix),
            inputs=_unique_of(operands, Tensor),
            outputs=(tensor,),
            weights=_unique_of(operands, Weight),
            operands=tuple(operands),
            origin=layer.name,
            making=PartOf(plan.changes, plan.region, full, by, share),
        )
        self.append(made, None if is_copy else reader)
        return tensor

    def _sum_layers(self, layer: Layer, split: _Split) -> None:
        tensor = layer.outputs[0]
        summands = []
        for reader in self._readers(layer, split):
            plan, summed = split.summand(layer, reader.part)
            summands.append(self._part(layer, plan, reader, summed))
        activation = str(layer.settings.get("fused_activation_function", ""))
        self._whole(tensor, f"sum of {tensor.name}", summands, Sum(activation), split)

    def _whole(
        self, tensor: Tensor, name: str, parts: Sequence[Tensor], making: Making, split: _Split
    ) -> None:
        """Append a layer that puts a tensor together; it is copied unless it is a model output."""
        is_output = any(output.name == tensor.name for output in self.graph.outputs)
        place = Place(split.block.parts[-1][0], None) if is_output else None
        self.made["whole", tensor.name] = self.make(name, tensor, parts, tensor, making, place)

    def _join(self, tensor: Tensor) -> None:
        """See to it that a tensor of the model can be read as a whole."""
        pieces = self._pieces.get(tensor.name)
        if pieces is None or ("whole", tensor.name) in self.made:
            return
        split = self._splits[pieces[0].at.split]
        parts = [self._crop(piece, piece.own) for piece in pieces]
        making = Join(split.axis[tensor.name])
        self._whole(tensor, f"join of {tensor.name}", parts, making, split)

    def _box(self, tensor: Tensor, box: Box, reader: _Reader) -> Tensor:
        """Return a tensor that has a box of another one, for a reader."""
        shape = tensor.shape or ()
        if tensor.name in self._pieces:
            return self._from_pieces(tensor, box, reader)
        maker = self.makers.get(tensor.name)
        reads_pieces = maker is not None and any(t.name in self._pieces for t in maker.inputs)
        if box == whole(shape) and not reads_pieces:
            return tensor
        if maker is not None and maker.name in self._copied:
            plan = part_of(self._form_of(maker), maker, box)
            if plan is not None and plan.region == box:
                key = ("copy", tensor.name, box, reader)
                if key not in self.made:
                    self.made[key] = self._part(maker, plan, reader)
                return self.made[key]
        if box == whole(shape):
            return tensor
        at: Place = reader
        if maker is None:
            at = Place(self._source(reader), _INPUTS)
        elif maker.name in self.entry_of:
            at = Place(self.entry_of[maker.name], self.group_of.get(maker.name))
        if at.entry == reader.entry:
            at = reader
        return self._cropped(tensor, box, whole(shape), at)

    def _source(self, reader: _Reader) -> int:
        """Return the entry where frames enter."""
        inputs = {tensor.name for tensor in self.graph.inputs}
        readers = (
            self.entry_of[layer.name]
            for layer in self._layers
            if layer.name in self.entry_of and any(t.name in inputs for t in layer.inputs)
        )
        return next(readers, reader.entry)

    def _from_pieces(self, tensor: Tensor, box: Box, reader: _Reader) -> Tensor:
        pieces = self._pieces[tensor.name]
        for piece in pieces:
            is_same_part = (piece.at.split, piece.at.part) == (reader.split, reader.part)
            if contains(piece.usable, box) and (is_same_part or piece.at.entry == reader.entry):
                return self._crop(piece, box, reader)
        if box == whole(tensor.shape or ()):
            self._join(tensor)
            return tensor
        shared = [(piece, intersection(piece.own, box)) for piece in pieces]
        parts = [self._crop(piece, place) for piece, place in shared if place]
        if len(parts) == 1:
            return parts[0]
        key = ("join", tensor.name, box, reader.entry, reader.group)
        if key not in self.made:
            name = self.unique(tensor.name + text_of(box, tensor.shape or ()))
            joined = replace(tensor, name=name, shape=sizes(box))
            making = Join(self._splits[pieces[0].at.split].axis[tensor.name])
            self.made[key] = self.make(f"join of {name}", tensor, parts, joined, making, reader)
        return self.made[key]

    def _crop(self, piece: _Piece, box: Box, reader: _Reader | None = None) -> Tensor:
        """Return a tensor with a box of a piece, made where the piece is, or at its reader's."""
        if box == piece.region:
            return piece.tensor
        return self._cropped(piece.tensor, box, piece.region, reader or piece.at)

    def _cropped(self, tensor: Tensor, box: Box, region: Box, at: Place) -> Tensor:
        key = ("crop", tensor.name, box, at.entry, at.group)
        if key not in self.made:
            place = within(box, region)
            name = self.unique(tensor.name + text_of(place, tensor.shape or ()))
            made = replace(tensor, name=name, shape=sizes(box))
            self.made[key] = self.make(f"crop of {name}", tensor, [tensor], made, Crop(place), at)
        return self.made[key]

    def _cut_weight(self, weight: Weight, box: Box) -> Weight:
        if box == whole(weight.shape):
            return weight
        key = weight.name, box
        if key not in self._weights:
            shape = sizes(box)
            self._weights[key] = replace(
                weight,
                name=self.unique(weight.name + text_of(box, weight.shape)),
                shape=shape,
                nbytes=values_bytes(weight.dtype, shape),
                part=StoredPart(box, weight.shape, weight.name),
            )
        return self._weights[key]


_T = TypeVar("_T", Tensor, Weight)


def _unique_of(operands: Iterable[Tensor | Weight | None], kind: type[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(one for one in operands if isinstance(one, kind)))
