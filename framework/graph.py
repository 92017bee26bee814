"""A model as a graph of layers and tensors, without its weights' bytes.

Readers make a :class:`Graph` of a model file; everything that decides (partition, checks,
exploration) sees only this. Weights are references into files, so a graph of a model of
gigabytes takes kilobytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.runtime.job import Tensor as JobTensor

UNNAMED = "?"
"""Stands for the name of an open size that has none."""

AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...]

_BITS = {"complex64": 64, "complex128": 128, "bool": 8, "bfloat16": 16, "float16": 16}


def dtype_bits(dtype: str) -> int:
    """Return the bits of one element of ``dtype``; 0 for strings, whose size is not fixed."""
    if dtype in _BITS:
        return _BITS[dtype]
    if dtype.startswith("float8"):
        return 8
    if dtype.startswith("float4"):
        return 4
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdigit() else 0


def values_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return (math.prod(shape) * dtype_bits(dtype) + 7) // 8


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes that lie in a file."""

    path: Path
    offset: int
    """Bytes from the start of the file."""
    length: int


Box: TypeAlias = tuple[tuple[int, int], ...]
"""Part of a tensor: by axis, where it begins and where it ends."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a frame computes: a model input, or an output of a layer."""

    name: str
    dtype: str
    """numpy's name of the element type; empty if the model does not give it. What is no tensor has
    its kind here, such as ``sequence``."""
    shape: tuple[int, ...] | None
    """Sizes, the largest ones where they are open; ``None`` if no bound of them is known."""
    symbols: tuple[str, ...] = ()
    """By axis, the name of a size that is open: it may change from frame to frame, up to that in
    :attr:`shape`. ``?`` if it has no name, empty if the size is fixed. Of the model inputs, sizes
    of one name are equal in a frame. ``()``: all sizes are fixed."""

    @property
    def is_open(self) -> bool:
        return any(self.symbols)

    @property
    def nbytes(self) -> int | None:
        """Largest size in bytes; ``None`` where type or shape are unknown."""
        if self.shape is None or not dtype_bits(self.dtype):
            return None
        return values_bytes(self.dtype, self.shape)

    def in_job(self) -> JobTensor:
        return JobTensor(self.name, self.dtype, self.shape or (), self.symbols)


AnyTensor: TypeAlias = Tensor | JobTensor


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A box of a constant's stored values."""

    box: Box
    shape: tuple[int, ...]
    """Of all that is stored."""
    name: str
    """Of the constant that is stored."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant stored in the model: only its description and where its bytes lie."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    """Size of the values in bytes."""
    record: ByteRange
    """The constant's whole record in the model file (ONNX: the ``TensorProto`` message)."""
    data: ByteRange | None
    """The values as contiguous little-endian bytes, in the model file or in a file beside it;
    ``None`` where the format stores them otherwise inside ``record``."""
    part: StoredPart | None = None
    """Which of the stored values it has, if not all of them."""
    content: bytes | None = None
    """The values of one that no file has, little-endian; ``record`` and ``data`` mean nothing."""

    @property
    def is_stored(self) -> bool:
        """Whether the model has it as it is."""
        return self.part is None and self.content is None


RANDOM = "a generator of random numbers"
"""What a layer that draws random numbers takes along from frame to frame."""


@dataclass(frozen=True, slots=True)
class PartOf:
    """A layer that makes a part of what a layer of the model file makes."""

    changes: tuple[tuple[str, object], ...] = ()
    """Settings that it has instead: see :mod:`rankslice.frontend.rewriting.regions`."""
    box: Box = ()
    """What its result stands for. Of a summand, this is the whole result."""
    shape: tuple[int, ...] = ()
    """Of the whole result."""
    by: str = ""
    """One of :data:`rankslice.framework.mapping.WAYS`; empty for a copy of a constant layer."""
    share: float = 1
    """How much of the whole layer's arithmetic it has."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A layer that takes a box out of a tensor."""

    box: Box


@dataclass(frozen=True, slots=True)
class Join:
    """A layer that puts tensors one behind the other."""

    axis: int


@dataclass(frozen=True, slots=True)
class Sum:
    """A layer that adds tensors of one shape."""

    activation: str = ""
    """What the format's operator does with the sum: a fused activation function."""


@dataclass(frozen=True, slots=True)
class Transpose:
    """A layer that puts the axes of a tensor into another order."""

    permutation: tuple[int, ...]
    """By axis of the result: the axis of the tensor."""


@dataclass(frozen=True, slots=True)
class Scales:
    """What integers stand for: ``scale * (integer - zero_point)``."""

    scales: tuple[float, ...] = (1.0,)
    """One, or one for each place along :attr:`axis`; more than 0."""
    zero_points: tuple[int, ...] = (0,)
    """As many."""
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Convert:
    """A layer that gives a tensor another element type."""

    scales: Scales | None = None
    """Between floating point numbers and integers; ``None``: between floating point types."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A layer of the model file that reads, or makes, tensors of other names."""


Making: TypeAlias = PartOf | Crop | Join | Sum | Transpose | Convert | Renamed


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One of the model files of which a parts file makes a model."""

    name: str
    """Layers and tensors have it in front of theirs: ``backbone/conv1``."""
    format: str
    """A suffix in :data:`rankslice.frontend.formats.FORMATS`; also that of its sub-models."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One node or operator: of the model file, or made."""

    name: str
    """Unique in the graph: the node's name, or ``<Op>_<index>`` if it has none."""
    op: str
    """Operator type, with its domain where that is not the default: ``com.microsoft.Gelu``."""
    inputs: tuple[Tensor, ...]
    """Tensors a frame brings, once each; neither weights nor omitted optional inputs."""
    outputs: tuple[Tensor, ...]
    """Tensors the layer makes; omitted optional outputs left out."""
    weights: tuple[Weight, ...]
    """Constants it reads, once each; a weight that layers share is the same object in each."""
    record: ByteRange | bytes
    """The layer's own record in the model file (ONNX: the ``NodeProto`` message). Of one that is
    made, the record of the layer that it comes from, until its format has written it."""
    deterministic: bool = True
    """False for random generators: such a layer is not constant even without inputs."""
    operands: tuple[Tensor | Weight | None, ...] = ()
    """What the operator itself is given, by position, tensors and weights alike; ``None`` where an
    optional one is omitted. What only the bodies of control flow read is not here."""
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    """Settings in the file's order: ``("strides", (2, 2))``. Those that are tensors, graphs, long
    lists or no text are left out."""
    lasting: tuple[str, ...] = ()
    """What it takes along from frame to frame, in words: ``the variable 'counter'``; so it needs
    all frames, in their order."""
    origin: str = ""
    """Name of the model's layer that it comes from; empty if it is one itself."""
    making: Making | None = None
    """How it is made, if no model file has it."""
    is_copied: bool = False
    """Whether each segment that reads from it has it as its own, unless it has a rank."""
    part: ModelPart | None = None
    """The part that has it, if the model consists of parts. A segment has layers of one part."""

    @property
    def settings(self) -> dict[str, AttributeValue]:
        return dict(self.attributes)

    def number(self, setting: str, default: int = 0) -> int:
        """Return a setting that is a whole number."""
        value = self.settings.get(setting, default)
        return value if isinstance(value, int) else default

    def with_tensors(
        self,
        read: Callable[[Tensor], Tensor],
        made: Callable[[Tensor], Tensor],
        weight: Callable[[Weight], Weight] = lambda weight: weight,
    ) -> Layer:
        """Return it with what these make of its inputs, its outputs and its weights."""
        return replace(
            self,
            inputs=tuple(map(read, self.inputs)),
            outputs=tuple(map(made, self.outputs)),
            weights=tuple(map(weight, self.weights)),
            operands=tuple(
                weight(o) if isinstance(o, Weight) else o and read(o) for o in self.operands
            ),
        )

    @property
    def is_unseeded(self) -> bool:
        """Whether it draws other random numbers in each run: TensorFlow's two seeds may be 0."""
        seeds = [self.settings[name] for name in ("seed", "seed2") if name in self.settings]
        return RANDOM in self.lasting and (not seeds or (len(seeds) == 2 and not any(seeds)))


@dataclass(frozen=True, slots=True)
class Bond:
    """Layers that only work inside one segment."""

    layers: tuple[str, ...]
    """Two or more names."""
    reason: str
    """What they do, for messages: ``share the variable 'counter'``."""


@dataclass(frozen=True, slots=True)
class QuantisedInput:
    """How a model input of integers stands for real values: ``scale * (integer - zero_point)``."""

    name: str
    scale: float
    """More than 0."""
    zero_point: float


@dataclass(frozen=True, slots=True)
class Graph:
    """A model: its layers in a topological order, and what goes in and comes out."""

    name: str
    """File name of the model, without folders."""
    format: str
    """A suffix in :data:`rankslice.frontend.formats.FORMATS`."""
    layers: tuple[Layer, ...]
    """Topological order; the file's order where that is one."""
    inputs: tuple[Tensor, ...]
    """What a frame brings (weights that the file lists as inputs are not here)."""
    outputs: tuple[Tensor, ...]
    """What comes out, in the model's order."""
    weights: tuple[Weight, ...]
    """All constants of the file that a layer reads."""
    bonds: tuple[Bond, ...] = ()
    """Layers that cannot be apart, because they share something that no channel carries."""
    warnings: tuple[str, ...] = ()
    """What to know about it, in words: sizes that the file declares are not true, for example."""
    quantised: tuple[QuantisedInput, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What a frame brings, and what layers make."""
        return (*self.inputs, *(tensor for layer in self.layers for tensor in layer.outputs))

    @property
    def names(self) -> set[str]:
        """The names of its layers, tensors and weights."""
        names = {layer.name for layer in self.layers}
        names |= {tensor.name for tensor in self.tensors}
        return names | {weight.name for weight in self.weights}


def unique_names(names: Sequence[tuple[str, str]]) -> list[str]:
    """Return names that are all different: its own for what is the only one of that name.

    Others get their place in the file as a number: ``<name>_<index>``, or ``<kind>_<index>``
    without a name of their own, and ``_`` behind while that is taken.

    Args:
        names: a name, or an empty one, and the kind of what has it.
    """
    count = Counter(name for name, _ in names)
    taken = set(count)
    unique: list[str] = []
    for index, (name, kind) in enumerate(names):
        chosen = name
        if not name or count[name] > 1:
            chosen = f"{name or kind}_{index}"
            while chosen in taken:
                chosen += "_"
            taken.add(chosen)
        unique.append(chosen)
    return unique


def unique_name(name: str, taken: set[str]) -> str:
    """Return a name that is not among others, and add it to them."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def fixed_tensors(graph: Graph) -> dict[str, str]:
    """Return tensors whose names are in records that are not rewritten, and their layers."""
    names: dict[str, str] = {}
    for layer in graph.layers:
        operands = {operand.name for operand in layer.operands if operand}
        read = {tensor.name for tensor in layer.inputs} | {one.name for one in layer.weights}
        if not read <= operands:
            names |= {tensor.name: layer.name for tensor in (*layer.inputs, *layer.outputs)}
    return names


def constant_layers(graph: Graph) -> frozenset[str]:
    """Return the names of the layers that yield the same for every frame and only feed others.

    Such a layer reads nothing but weights and other constant layers, and draws no random
    numbers. It can be copied to all ranks that need it, so a mapping may leave it out. A layer that
    makes a model output is not among them, nor is a layer that reads from such a one: somebody
    has to run it and to send its result.
    """
    outputs = {tensor.name for tensor in graph.outputs}
    constant: set[str] = set()
    made: set[str] = set()
    for layer in graph.layers:
        if layer.deterministic and all(tensor.name in made for tensor in layer.inputs):
            names = {tensor.name for tensor in layer.outputs}
            if names.isdisjoint(outputs):
                constant.add(layer.name)
                made |= names
    return frozenset(constant)
