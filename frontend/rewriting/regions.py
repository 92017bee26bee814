"""What operators need of their operands for a part of their result.

A format describes each of its operators by one of these forms. One table of rules then serves rows,
columns, channels, heads and tokens of all formats.

Changes of a layer that makes a part, by name:

* ``pads``: padding by axis that the window moves along, before and behind it
* ``group``: groups of channels
* ``shape``: sizes of the result, for a layer that is told them
* ``slice``: where a slice ends, and its steps, by axis; it begins at 0
* ``without``: numbers of the operands that it does not have
* ``partial``: it makes a part of a sum, without the format's activation function
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rankslice.framework.graph import Box, Layer, Tensor, Weight
from rankslice.frontend.rewriting.boxes import intersection, sizes, whole, with_ends

Changes: TypeAlias = tuple[tuple[str, object], ...]

_SUMMED = ("float", "bfloat", "int32", "int64")
"""How names of types begin whose partial sums can be added."""


@dataclass(frozen=True, slots=True)
class LayerPart:
    """How a layer makes a part of its result."""

    region: Box
    """What the part's result stands for."""
    operands: Mapping[int, Box]
    """What it needs of operands; of all others everything."""
    changes: Changes = ()
    valid: Box | None = None
    """Where the values of the result are right, if not everywhere."""

    @property
    def usable(self) -> Box:
        return self.valid or self.region

    def needs(self, layer: Layer) -> Iterator[tuple[Tensor | Weight, Box]]:
        """Yield the operands that the layer has, with what is needed of each."""
        for number, operand in enumerate(layer.operands):
            if operand is not None:
                yield operand, self.operands.get(number, whole(operand.shape or ()))


class Form:
    """What is known of an operator with one result."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        """Return how a layer makes at least a box of its result; ``None``: not by parts."""
        return None

    def summand(self, layer: Layer, begin: int, end: int) -> LayerPart | None:
        """Return how it makes the sum over a range of the axis that :meth:`contracted` names."""
        return None

    def contracted(self, layer: Layer) -> tuple[int, int] | None:
        """Return the operand, and its axis, over which products are summed."""
        return None

    def first_axis(self, layer: Layer, by: str) -> int | None:
        """Return the axis of the result that has its rows, columns or outputs, if the form says."""
        return None

    def groups(self, layer: Layer) -> int:
        """Return into how many groups of equal size the channels of the result fall."""
        return 1


FormOf: TypeAlias = Callable[[Layer], Form | None]
"""What a format knows of a layer's operator; ``None``: nothing."""


def shape_of(layer: Layer, operand: int) -> tuple[int, ...]:
    """Return the shape of an operand; ``()`` if it is omitted."""
    held = layer.operands[operand] if operand < len(layer.operands) else None
    return (held.shape or ()) if held is not None else ()


def result_shape(layer: Layer) -> tuple[int, ...]:
    return layer.outputs[0].shape or ()


def _broadcast(region: Box, shape: Sequence[int]) -> Box | None:
    """Return what a result's region needs of an operand that is broadcast to it."""
    if len(shape) > len(region):
        return None
    behind = region[len(region) - len(shape) :]
    return tuple((0, 1) if size == 1 else ends for size, ends in zip(shape, behind, strict=True))


def _per_channel(layer: Layer, axes: Mapping[int, int], ends: tuple[int, int]) -> dict[int, Box]:
    """Return what is needed of operands with a value per channel; of those with one value, all."""
    channels = {}
    for operand, axis in axes.items():
        shape = shape_of(layer, operand)
        if shape and shape[axis] > 1:
            channels[operand] = with_ends(whole(shape), axis, ends)
    return channels


@dataclass(frozen=True, slots=True)
class Elementwise(Form):
    """Each value of the result is made of the values at its place, and on axes that it mixes."""

    mixes: tuple[int, ...] = ()
    """Axes of the result that cannot be split."""
    along: Mapping[int, int] = field(default_factory=dict)
    """Operands with a value for each place of an axis -> the axis of the result."""
    parameters: tuple[int, ...] = ()
    """Operands that hold settings: needed as they are."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        result = result_shape(layer)
        region = box
        for axis in self.mixes:
            region = with_ends(region, axis, (0, result[axis]))
        boxes: dict[int, Box] = {}
        for number, operand in enumerate(layer.operands):
            if operand is None or number in self.parameters:
                continue
            if number in self.along:
                boxes |= _per_channel(layer, {number: 0}, region[self.along[number]])
            elif (needed := _broadcast(region, operand.shape or ())) is not None:
                boxes[number] = needed
            else:
                return None
        return LayerPart(region, boxes)


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves along one axis."""

    size: int
    """What it spans: with gaps, if it is dilated."""
    stride: int
    before: int
    """Padding."""
    after: int

    @classmethod
    def over(cls, size: int, stride: int, shape: int, result: int, before: int | None) -> Window:
        """Return a window by the sizes of input and result, which tell the padding behind.

        Args:
            before: ``None``: half of all padding, rounded down.
        """
        padding = max((result - 1) * stride + size - shape, 0)
        before = padding // 2 if before is None else before
        return cls(size, stride, before, max(padding - before, 0))

    def needs(self, ends: tuple[int, int]) -> tuple[int, int]:
        """Return what a range of the result needs, padding included."""
        begin, end = ends
        return begin * self.stride - self.before, (end - 1) * self.stride - self.before + self.size

    def without_pads(self, ends: tuple[int, int], size: int) -> _AlongAxis | None:
        """Return a range of the input on which equal rules of padding give a range of the result.

        The window pads by the size of its input: by ``SAME`` of TensorFlow. The padding at a cut
        makes wrong values, so the range of the result is longer, and the right ones are in it.

        Args:
            size: of the whole input.
        """
        low, high = self.needs(ends)
        starts = range(max(low, 0), max(low - self.size - 2 * self.stride, 0) - 1, -1)
        stops = range(min(high, size), min(high + self.size + 2 * self.stride, size) + 1)
        fitting = []
        for start in starts:
            for stop in stops:
                count = -(-(stop - start) // self.stride)
                total = max((count - 1) * self.stride + self.size - (stop - start), 0)
                first, off = divmod(start - total // 2 + self.before, self.stride)
                covers = 0 <= first <= ends[0] and ends[1] <= first + count
                is_right = (low >= start or start == 0) and (high <= stop or stop == size)
                if covers and is_right and not off:
                    fitting.append(_AlongAxis((start, stop), (first, first + count), (0, 0)))
        return min(fitting, key=lambda one: one.needed[1] - one.needed[0], default=None)


@dataclass(frozen=True, slots=True)
class _AlongAxis:
    needed: tuple[int, int]
    region: tuple[int, int]
    pads: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Filters:
    """The weights of a convolution."""

    operand: int
    outputs: int
    """Axis of its output channels."""
    inputs: int
    """Axis of the input channels, of a group."""
    groups: int = 1
    per_output: Mapping[int, int] = field(default_factory=dict)
    """Operands with a value per output channel -> their axis: biases, scales."""
    biases: tuple[int, ...] = ()
    """Operands that are added to the sum: the first summand has them."""


@dataclass(frozen=True, slots=True)
class Windowed(Form):
    """A window moves over the input: convolutions and pools."""

    axes: tuple[int, ...]
    """Along which it moves, of the input and of the result."""
    windows: tuple[Window | None, ...]
    """By axis; ``None``: each place of the result needs all of the input."""
    channels: int
    """Axis of the channels."""
    filters: Filters | None = None
    sets_pads: bool = True
    """Whether a layer can be told any padding; if not, it pads by the size of its input."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        shape, result = shape_of(layer, 0), result_shape(layer)
        needed, region, valid = with_ends(whole(shape), 0, box[0]), box, box
        pads, usual = [], []
        for axis, window in zip(self.axes, self.windows, strict=True):
            if window is None:
                region, valid = (with_ends(one, axis, (0, result[axis])) for one in (region, valid))
                continue
            along = self._along(window, box[axis], shape[axis], result[axis])
            if along is None:
                return None
            needed = with_ends(needed, axis, along.needed)
            region = with_ends(region, axis, along.region)
            pads.append(along.pads)
            usual.append((window.before, window.after))
        boxes: dict[int, Box] = {0: needed}
        changes: Changes = (("pads", tuple(pads)),) if pads != usual and self.sets_pads else ()
        if self.filters is None:
            boxes[0] = with_ends(needed, self.channels, box[self.channels])
        else:
            filters = self.filters
            count = filters.groups
            each_out, each_in = (one[self.channels] // count for one in (result, shape))
            begin, end = box[self.channels]
            if count > 1:
                first, last = begin // each_out, -(-end // each_out)
                if last - first > 1:
                    begin, end = first * each_out, last * each_out
                boxes[0] = with_ends(needed, self.channels, (first * each_in, last * each_in))
                if last - first < count:
                    changes = (*changes, ("group", last - first))
            region = with_ends(region, self.channels, (begin, end))
            valid = with_ends(valid, self.channels, (begin, end))
            per_output = {filters.operand: filters.outputs, **filters.per_output}
            boxes |= _per_channel(layer, per_output, (begin, end))
        return LayerPart(region, boxes, changes, valid)

    def _along(
        self, window: Window, ends: tuple[int, int], size: int, result: int
    ) -> _AlongAxis | None:
        if ends == (0, result):
            return _AlongAxis((0, size), ends, (window.before, window.after))
        low, high = window.needs(ends)
        start, stop = max(low, 0), min(high, size)
        if start >= stop:
            return None
        if not self.sets_pads and (window.before or window.after):
            return window.without_pads(ends, size)
        return _AlongAxis((start, stop), ends, (start - low, high - stop))

    def summand(self, layer: Layer, begin: int, end: int) -> LayerPart | None:
        filters = self.filters
        if filters is None or filters.groups > 1:
            return None
        axes = {0: self.channels, filters.operand: filters.inputs}
        return _summand(layer, axes, (begin, end), filters.biases)

    def groups(self, layer: Layer) -> int:
        return self.filters.groups if self.filters else 1

    def contracted(self, layer: Layer) -> tuple[int, int] | None:
        return (0, self.channels) if self.filters and self.filters.groups == 1 else None

    def first_axis(self, layer: Layer, by: str) -> int | None:
        axes = dict(zip(("rows", "columns"), self.axes, strict=False))
        return self.channels if by == "outputs" else axes.get(by)


@dataclass(frozen=True, slots=True)
class Product(Form):
    """A product of matrices: ``[..., m, k]`` by ``[..., k, n]``, and what is added to it."""

    left: int = 0
    right: int = 1
    turns_left: bool = False
    """Whether the left matrix is stored transposed."""
    turns_right: bool = False
    flattens_left: bool = False
    """Whether the left operand may have other axes: its values count as rows of the matrix."""
    per_output: tuple[int, ...] = ()
    """Operands with a value per column of the result: scales."""
    biases: tuple[int, ...] = ()
    """Operands that are broadcast and added."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        result = result_shape(layer)
        left, right = (shape_of(layer, number) for number in (self.left, self.right))
        if self.flattens_left and right:
            left = (*result[:-1], right[-1 if self.turns_right else -2])
        if min(len(left), len(right)) < 2:
            return None
        rows = self._matrix(box, left, 1 if self.turns_left else 2, box[-2])
        columns = self._matrix(box, right, 2 if self.turns_right else 1, box[-1])
        boxes = _per_channel(layer, dict.fromkeys(self.per_output, 0), box[-1])
        flat = _same_values(rows, left, shape_of(layer, self.left))
        needed = {
            self.left: flat if self.flattens_left else rows,
            self.right: columns,
            **{number: _broadcast(box, shape_of(layer, number)) for number in self.biases},
        }
        for number, one in needed.items():
            if one is None:
                return None
            boxes[number] = one
        return LayerPart(box, boxes)

    @staticmethod
    def _matrix(box: Box, shape: Sequence[int], place: int, ends: tuple[int, int]) -> Box:
        """Return a range of rows or columns of the matrices that the result's batch needs.

        Args:
            place: of that axis, from the last one.
        """
        outer = _broadcast(box[:-2], shape[:-2]) or ()
        return with_ends((*outer, *whole(shape[-2:])), len(shape) - place, ends)

    def summand(self, layer: Layer, begin: int, end: int) -> LayerPart | None:
        left, right = (shape_of(layer, number) for number in (self.left, self.right))
        if len(right) < 2:
            return None
        axes = {
            self.left: self._summed_axis(left),
            self.right: len(right) - (1 if self.turns_right else 2),
        }
        if left[axes[self.left]] != right[axes[self.right]]:
            return None
        return _summand(layer, axes, (begin, end), self.biases)

    def _summed_axis(self, left: Sequence[int]) -> int:
        return len(left) - (2 if self.turns_left else 1)

    def contracted(self, layer: Layer) -> tuple[int, int] | None:
        return self.left, self._summed_axis(shape_of(layer, self.left))

    def first_axis(self, layer: Layer, by: str) -> int | None:
        if by == "columns":
            return None
        return len(result_shape(layer)) - (2 if by == "rows" else 1)


def _summand(
    layer: Layer, axes: Mapping[int, int], ends: tuple[int, int], biases: Sequence[int]
) -> LayerPart | None:
    """Return how a layer sums over a range of an axis; ``axes``: that axis, by operand."""
    if not layer.outputs[0].dtype.startswith(_SUMMED):
        return None
    changes: Changes = (("partial", True),)
    added = tuple(number for number in biases if shape_of(layer, number))
    if ends[0] and added:
        changes = (*changes, ("without", added))
    return LayerPart(whole(result_shape(layer)), _per_channel(layer, axes, ends), changes)


@dataclass(frozen=True, slots=True)
class Reshaped(Form):
    """The values in their order, with other sizes."""

    is_told: bool = True
    """Whether the layer is told the sizes; else it works them out."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        source, result = shape_of(layer, 0), result_shape(layer)
        needed: list[tuple[int, int]] = []
        at = 0
        for ins, outs in _equal_groups(source, result):
            ends = box[at : at + len(outs)]
            at += len(outs)
            inner = _same_values(ends, outs, ins)
            if inner is None:
                return None
            needed += inner
        changes: Changes = (("shape", sizes(box)),) if self.is_told else ()
        return LayerPart(box, {0: tuple(needed)}, changes)


def _equal_groups(
    source: Sequence[int], result: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the runs of axes, of both shapes, that have the same number of values."""
    groups = []
    i = j = 0
    while i < len(source) or j < len(result):
        ends = [i, j]
        counts = [1, 1]
        for side, shape in enumerate((source, result)):
            if ends[side] < len(shape):
                counts[side] = shape[ends[side]]
                ends[side] += 1
        while counts[0] != counts[1]:
            side = int(counts[0] > counts[1])
            shape = (source, result)[side]
            counts[side] *= shape[ends[side]]
            ends[side] += 1
        groups.append((tuple(source[i : ends[0]]), tuple(result[j : ends[1]])))
        i, j = ends
    return groups


def _same_values(ends: Box, shape: Sequence[int], other: Sequence[int]) -> Box | None:
    """Return the box of another shape that has the values of a box; ``None`` if none does."""
    if ends == whole(shape):
        return whole(other)
    first = last = 0
    for (begin, end), size in zip(ends, shape, strict=True):
        first, last = first * size + begin, last * size + end - 1
    if last - first + 1 != math.prod(sizes(ends)):
        return None
    box: list[tuple[int, int]] = []
    low, high = first, last
    inner = math.prod(other)
    is_one = True  # place so far
    for size in other:
        inner //= size
        begin, end = low // inner, high // inner
        low, high = low - begin * inner, high - end * inner
        box.append((begin, end + 1) if is_one else (0, size))
        is_one = is_one and begin == end
    return tuple(box) if math.prod(sizes(tuple(box))) == last - first + 1 else None


@dataclass(frozen=True, slots=True)
class Concatenated(Form):
    """The operands, one behind the other."""

    axis: int
    first: int = 0
    """Number of the first of them."""
    apart: int = 1
    """How many operands each has: itself, and settings."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        boxes: dict[int, Box] = {}
        left_out: list[int] = []
        start = 0
        for number in range(self.first, len(layer.operands), self.apart):
            shape = shape_of(layer, number)
            place = with_ends(box, self.axis, (start, start + shape[self.axis]))
            shared = intersection(box, place)
            if shared is None:
                left_out += range(number, number + self.apart)
            else:
                begin, end = shared[self.axis]
                boxes[number] = with_ends(shared, self.axis, (begin - start, end - start))
            start += shape[self.axis]
        changes: Changes = (("without", tuple(left_out)),) if left_out else ()
        return LayerPart(box, boxes, changes)


@dataclass(frozen=True, slots=True)
class Following(Form):
    """Axes of operands are axes of the result; it is computed whole along all others."""

    axes: Mapping[int, tuple[int | None, ...]]
    """By operand, and by its axis: the axis of the result; ``None``: all of it is needed."""
    is_told: bool = False
    """Whether the layer is told the sizes of its result."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        followed = {axis for axes in self.axes.values() for axis in axes}
        sized = enumerate(zip(box, result_shape(layer), strict=True))
        region = tuple(ends if axis in followed else (0, size) for axis, (ends, size) in sized)
        boxes: dict[int, Box] = {}
        for operand, axes in self.axes.items():
            pairs = zip(axes, shape_of(layer, operand), strict=True)
            boxes[operand] = tuple((0, n) if axis is None else region[axis] for axis, n in pairs)
        changes: Changes = (("shape", sizes(region)),) if self.is_told else ()
        return LayerPart(region, boxes, changes)


def reduced(layer: Layer, axes: Sequence[int], keeps_axes: bool = True) -> Following:
    """Return the form of a layer that reduces axes of its input to one value.

    Args:
        keeps_axes: whether the result has them, with size 1.
    """
    kept = [axis for axis in range(len(shape_of(layer, 0))) if axis not in axes]
    place = {axis: axis if keeps_axes else number for number, axis in enumerate(kept)}
    return Following({0: tuple(place.get(axis) for axis in range(len(shape_of(layer, 0))))})


def transposed(permutation: Sequence[int]) -> Following:
    """Return the form of a layer that puts axes into another order: by axis of the result."""
    return Following({0: inverse(permutation)})


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


@dataclass(frozen=True, slots=True)
class Scaled(Form):
    """Each place of the input is a block of places of the result, or the other way round."""

    factors: tuple[tuple[int, int], ...]
    """By axis: places of the result, for how many of the input; ``(0, 0)``: the axis is mixed."""
    reach: int = 0
    """How many neighbours of the input a value needs on each side, along axes that grow. With
    interpolation, parts are exact only if an axis grows by a power of two: then places between the
    values are the same floating-point numbers everywhere, apart from a whole number."""
    is_told: bool = False
    """Whether the layer is told the sizes of its result."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        needed, region, valid = [], [], []
        result = zip(self.factors, box, shape_of(layer, 0), result_shape(layer), strict=True)
        for (up, down), (begin, end), size, made in result:
            if not up:
                needed.append((0, size))
                region.append((0, made))
                valid.append((0, made))
                continue
            reach = self.reach if up > 1 else 0
            low, high = begin // up * down, -(-end // up) * down
            start, stop = max(low - reach, 0), min(high + reach, size)
            needed.append((start, stop))
            region.append((start * up // down, stop * up // down))
            valid.append((low * up // down, high * up // down))
        changes: Changes = (("shape", sizes(tuple(region))),) if self.is_told else ()
        return LayerPart(tuple(region), {0: tuple(needed)}, changes, tuple(valid))


@dataclass(frozen=True, slots=True)
class Sliced(Form):
    """Every so many places of the input, from a place on."""

    steps: tuple[tuple[int, int], ...]
    """By axis: the first place, and how many it is to the next."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        needed = tuple(
            (first + begin * step, first + (end - 1) * step + 1)
            for (first, step), (begin, end) in zip(self.steps, box, strict=True)
        )
        steps = (step for _, step in self.steps)
        changes: Changes = (("slice", tuple(zip(sizes(needed), steps, strict=True))),)
        return LayerPart(box, {0: needed}, changes)


@dataclass(frozen=True, slots=True)
class Divided(Form):
    """Each of several results has the next places of an operand along an axis."""

    operand: int
    axis: int

    def boxes(self, layer: Layer) -> Iterator[Box]:
        """Yield what each result has of the operand."""
        begin = 0
        for result in layer.outputs:
            end = begin + (result.shape or ())[self.axis]
            yield with_ends(whole(shape_of(layer, self.operand)), self.axis, (begin, end))
            begin = end


@dataclass(frozen=True, slots=True)
class Padded(Form):
    """Values of one number around the input."""

    pads: tuple[tuple[int, int], ...]
    """By axis."""

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        needed, pads = [], []
        for (begin, end), size, (before, _) in zip(box, shape_of(layer, 0), self.pads, strict=True):
            low, high = begin - before, end - before
            start, stop = max(low, 0), min(high, size)
            if start >= stop:
                return None
            needed.append((start, stop))
            pads.append((start - low, high - stop))
        changes: Changes = (("pads", tuple(pads)),) if tuple(pads) != self.pads else ()
        return LayerPart(box, {0: tuple(needed)}, changes)
