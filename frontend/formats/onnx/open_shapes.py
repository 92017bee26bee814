"""Shapes of an ONNX graph's tensors some of whose sizes change from frame to frame.

They are inferred several times: at the largest sizes, at smaller ones and at the smallest, and by
names. The first inference gives the bounds. A size is called fixed only if the inference by names
says so, or if all inferences found the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from onnx import ModelProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, helper

from rankslice.framework.graph import Tensor
from rankslice.frontend.formats.input_shapes import InputSizes
from rankslice.frontend.formats.onnx.decided import Operands, ranges
from rankslice.frontend.formats.onnx.follow import (
    Facts,
    body_types,
    fits,
    follow_types,
    has_long_vector,
    infer_whole,
)
from rankslice.frontend.formats.onnx.types import dims_of, dtype_of_value, is_fixed, sizes_of

_SMALLEST = (1, 8, 32, 64)
"""What open sizes are tried with; strided layers need some pixels, and multiples of their steps."""

_MAX_TRIES, _MAX_LAYERS_TRIED = 16, 2048
"""How often sizes in between are tried, and layers in all these tries."""


class _Share(Enum):
    """How large the results are whose sizes data decide."""

    LEAST = 0
    HALF = 1
    MOST = 2

    def of(self, smallest: int, largest: int) -> int:
        if self is _Share.HALF:
            return max(smallest, largest // 2)
        return largest if self is _Share.MOST else smallest


def open_tensors(
    model: ModelProto, settled: InputSizes, declared: Mapping[str, TypeProto]
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors of a graph, with bounds where sizes are open.

    What also is returned: the tensors that smaller inputs make larger, so that sizes which were not
    tried may make them larger than their bounds.
    """
    inference = _Inference(model, settled, declared)
    bounds = settled.bounds
    largest = inference.at(bounds, _Share.MOST)
    step, smallest = inference.smallest(bounds, _known(largest))
    # Below the bounds, or all inferences would be one.
    half = {
        name: min(max(step, size // 2 // step * step), size - 1) for name, size in bounds.items()
    }
    others = [smallest, inference.at(half, _Share.HALF)]
    if len(bounds) > 1:
        odd = set(list(bounds)[1::2])
        for large, share in ((odd, _Share.MOST), (bounds.keys() - odd, _Share.LEAST)):
            sizes = half | {name: bounds[name] for name in large}
            others.append(inference.at(sizes, share))
    # Sizes of results may peak anywhere below the bounds.
    tries = min(_MAX_TRIES, _MAX_LAYERS_TRIED // len(model.graph.node)) if bounds else 0
    between = [
        inference.at(
            {
                name: min(-(-size * number // (tries * step)) * step, size)
                for name, size in bounds.items()
            },
            _Share.MOST,
        )
        for number in range(1, tries)
    ]
    by_name = inference.by_name(largest)
    tensors = {
        name: _tensor(
            name,
            kind,
            [types.get(name) for types in others],
            [types[name] for types in between if is_fixed(types.get(name, TypeProto()))],
            by_name.get(name),
            bounds,
        )
        for name, kind in largest.items()
    }
    if len(bounds) == 1 and len(between) + 1 == max(bounds.values()):
        return tensors, ()  # all sizes were tried
    shapes = {name: tensor.shape for name, tensor in tensors.items() if tensor.shape is not None}
    return tensors, tuple(n for n, shape in shapes.items() if shape != dims_of(largest[n]))


def known_sizes(
    model: ModelProto, settled: InputSizes, declared: Mapping[str, TypeProto]
) -> dict[str, tuple[int | None, ...]]:
    """Return sizes of tensors whose number of dimensions is known; ``None``: open, or unknown."""
    inference = _Inference(model, settled, declared)
    largest = inference.at(settled.bounds, _Share.MOST)
    _, smallest = inference.smallest(settled.bounds, _known(largest))
    known = {}
    for name, kind in largest.items():
        if sizes := sizes_of(kind):
            others = sizes_of(smallest.get(name, TypeProto())) or ()
            pairs = zip_longest(sizes, others[: len(sizes)])
            known[name] = tuple(size if size == other else None for size, other in pairs)
    return known


def _known(types: Mapping[str, TypeProto]) -> int:
    return sum(map(is_fixed, types.values()))


@dataclass(frozen=True, slots=True)
class _Inference:
    """Infers the types of one model's tensors at different sizes."""

    _model: ModelProto
    _settled: InputSizes
    _declared: Mapping[str, TypeProto]

    def at(self, sizes: Mapping[str, int], share: _Share) -> dict[str, TypeProto]:
        model = infer_whole(self._with_inputs(sizes))
        decide = _Decision(share, self._settled.others, self._declared, sizes)
        return follow_types(model, decide)

    def smallest(self, bounds: Mapping[str, int], wanted: int) -> tuple[int, dict[str, TypeProto]]:
        """Return the smallest size at which so many types are known, or the most, and the types."""
        by_size: dict[int, dict[str, TypeProto]] = {}
        for least in _SMALLEST if bounds else _SMALLEST[:1]:
            sizes = {name: min(least, max(1, size // 2)) for name, size in bounds.items()}
            by_size[least] = self.at(sizes, _Share.LEAST)
            if _known(by_size[least]) >= wanted:
                return least, by_size[least]
        best = max(by_size, key=lambda least: _known(by_size[least]))
        return best, by_size[best]

    def by_name(self, largest: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
        """Return the types with the names of open sizes, and without sizes that are not known."""
        model = self._with_inputs({name: name for name in self._settled.bounds})
        # onnx would hold the values of tensors of any length.
        graph = infer_whole(model, values=not has_long_vector(largest.values())).graph
        values = (*graph.value_info, *graph.output, *graph.input)
        return {value.name: value.type for value in values}

    def _with_inputs(self, sizes: Mapping[str, int | str]) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(self._model)
        for value in model.graph.input:
            shape = self._settled.shapes.get(value.name)
            if shape is not None:
                symbols = self._settled.symbols[value.name] or ("",) * len(shape)
                named = [
                    sizes.get(symbol, size) for size, symbol in zip(shape, symbols, strict=True)
                ]
                value.type.CopyFrom(_typed(value.type.tensor_type.elem_type, named))
        return model


@dataclass(frozen=True, slots=True)
class _Decision:
    """Gives sizes to what the inference leaves open: as large as a share says."""

    _share: _Share
    _at_most: Mapping[str, tuple[int, ...]]
    _declared: Mapping[str, TypeProto]
    _sizes: Mapping[str, int]

    def __call__(self, facts: Facts, node: NodeProto) -> Iterator[ValueInfoProto]:
        for position, name in enumerate(node.output):
            if not name:
                continue
            kind = facts.types.get(name, TypeProto())
            if not is_fixed(kind):
                kind = self._decided(facts, node, position, kind)
            if name in self._at_most:
                kind = self._narrowed(kind, self._at_most[name])
            if kind.WhichOneof("value"):
                yield ValueInfoProto(name=name, type=kind)

    def _decided(self, facts: Facts, node: NodeProto, position: int, kind: TypeProto) -> TypeProto:
        operands = Operands(
            node, facts.types, facts.values, lambda body: body_types(facts, node, body, self)
        )
        claim = self._as_declared(node.output[position], kind)
        result = ranges(operands, position)
        # With bounds, the sizes that a file declares may be those of its exporter's example.
        if result is not None and (self._sizes or not is_fixed(claim)):
            sizes = [self._share.of(*size) for size in result.sizes]
            known = kind.tensor_type.shape.dim
            if len(known) == len(sizes):
                sizes = [
                    dim.dim_value if dim.HasField("dim_value") else size
                    for dim, size in zip(known, sizes, strict=True)
                ]
            return _typed(result.element or kind.tensor_type.elem_type, sizes)
        return claim

    def _as_declared(self, name: str, kind: TypeProto) -> TypeProto:
        """Return the type that the file declares, if its sizes have known names."""
        claim = self._declared.get(name, TypeProto())
        tensor = claim.tensor_type
        if not fits(kind, claim) or not tensor.HasField("shape") or not tensor.elem_type:
            return kind
        sizes = [self._sizes.get(dim.dim_param, dim.dim_value or None) for dim in tensor.shape.dim]
        known = [size for size in sizes if size is not None]
        return _typed(tensor.elem_type, known) if len(known) == len(sizes) else kind

    def _narrowed(self, kind: TypeProto, given: tuple[int, ...]) -> TypeProto:
        """Return a type with the bounds that are given; they decide what is the most."""
        tensor = kind.tensor_type
        known = tensor.shape.dim or [TensorShapeProto.Dimension()] * len(given)
        if not tensor.elem_type or len(known) != len(given):
            return kind
        if self._share is _Share.MOST:
            return _typed(tensor.elem_type, given)
        return _typed(
            tensor.elem_type,
            [
                min(dim.dim_value, most) if dim.HasField("dim_value") else self._share.of(0, most)
                for dim, most in zip(known, given, strict=True)
            ],
        )


def _typed(element: int, sizes: Iterable[int | str]) -> TypeProto:
    return helper.make_tensor_type_proto(element, list(sizes))


def _tensor(
    name: str,
    largest: TypeProto,
    others: Iterable[TypeProto | None],
    between: Iterable[TypeProto],
    by_name: TypeProto | None,
    names: Container[str],
) -> Tensor:
    """Return a tensor from what the inferences at several sizes, and by names, have found.

    Args:
        others: the same at others; ``None``: not known there.
        between: the same at further ones where it is known.
        names: those of the inputs' open sizes; others are made up.
    """
    dtype = dtype_of_value(largest)
    if not is_fixed(largest):
        return Tensor(name, dtype, None)
    bound = dims_of(largest)
    known = [dims_of(kind) if kind is not None and is_fixed(kind) else None for kind in others]
    shapes = [shape for shape in known if shape is not None and len(shape) == len(bound)]
    more = [shape for shape in map(dims_of, between) if len(shape) == len(bound)]
    named = by_name.tensor_type.shape.dim if by_name is not None else ()
    symbols = ["?"] * len(bound)
    for axis, size in enumerate(bound):
        dim = named[axis] if len(named) == len(bound) else TensorShapeProto.Dimension()
        is_same = len(shapes) == len(known)
        is_same = is_same and all(shape[axis] == size for shape in (*shapes, *more))
        if is_same or dim.HasField("dim_value"):
            symbols[axis] = ""
        elif dim.dim_param in names:
            symbols[axis] = dim.dim_param
    largest_sizes = tuple(map(max, zip(bound, *shapes, *more, strict=True)))
    return Tensor(name, dtype, largest_sizes, tuple(symbols) if any(symbols) else ())
