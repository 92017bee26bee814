"""Sub-models of a TensorFlow Lite file: new tables, and the contents of buffers by byte ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.input_shapes import replace_open
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.pieces import (
    Pieces,
    SubModelFiles,
    check_types,
    coalesce,
    pieces_length,
)
from rankslice.frontend.formats.tflite.builder import flatbuffer
from rankslice.frontend.formats.tflite.operators import is_doubtful, tflite_facts
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.formats.tflite.references import MAIN, referred, renumbered
from rankslice.frontend.formats.tflite.wire import Table, Value, large_options, packed
from rankslice.frontend.partition.partition import PartitionSegment

_MAX_TABLES_SIZE = 1 << 26
FLATBUFFER_LIMIT = (1 << 31) - _MAX_TABLES_SIZE
"""Bytes; buffers that have more than that together lie behind the flatbuffer."""

_KEPT_METADATA = ("CONVERSION_METADATA", "min_runtime_version", "reduced_precision_support")
"""Metadata that say nothing about layers, tensors, inputs or outputs."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Which records of a model a sub-model has; new numbers follow the order."""

    operators: tuple[int, ...]
    """Of the main subgraph."""
    tensors: tuple[int, ...]
    """Of the main subgraph."""
    subgraphs: tuple[int, ...]
    buffers: tuple[int, ...]
    opcodes: tuple[int, ...]


def tflite_submodel(
    model: TfliteModel,
    part: PartitionSegment,
    name: str,
    conversion: Conversion = FLOAT32,
    *,
    limit: int = FLATBUFFER_LIMIT,
) -> SubModelFiles:
    """Return a TensorFlow Lite file with some of a model's layers.

    Operators and tensors keep all that the model says of them: versions, settings, quantisation,
    sparsity. So do the subgraphs that the operators run. Buffers that several tensors share
    are shared again, and those that nobody reads are left out. Metadata and signatures are kept
    where they still hold.
    """
    check_types(model.path, (*part.inputs, *part.outputs))
    number_of = {tensor: number for number, tensor in enumerate(model.tensor_names)}
    input_numbers = [number_of[tensor.name] for tensor in part.inputs]
    output_numbers = [number_of[tensor.name] for tensor in part.outputs]
    operators = sorted(n for layer in part.layers for n in model.operators_of[layer.name])
    numbers = _numbers(model, operators, [*input_numbers, *output_numbers])
    contents = (model.buffers[number] for number in numbers.buffers)
    behind = sum(content.length for content in contents if content) > limit
    root = _root(model, numbers, input_numbers, output_numbers, behind=behind)
    pieces = tuple(coalesce(flatbuffer(root)))
    head = pieces_length(piece for piece in pieces[:1] if isinstance(piece, bytes))
    if head > _MAX_TABLES_SIZE:
        raise RankSliceError(Mistake(name, f"needs {head} bytes beside its weights"))
    return SubModelFiles(pieces, facts=tflite_facts(root), is_doubtful=is_doubtful(root))


def _numbers(model: TfliteModel, operators: Sequence[int], exchanged: Iterable[int]) -> _Numbers:
    tables = model.main.tables("operators")
    tensors = set(exchanged)
    subgraphs: set[int] = set()
    for position in operators:
        tensors |= referred([tables[position]], "tensor")
        subgraphs |= set(model.bodies[position])
    all_tensors = model.main.tables("tensors")
    # Quantisation by blocks names tensors that hold the scales.
    tensors |= referred([all_tensors[number] for number in tensors], "tensor")
    whole = [model.subgraphs[number] for number in subgraphs]
    own = [tables[position] for position in operators]
    buffers = referred([*(all_tensors[number] for number in tensors), *whole], "buffer")
    buffers |= {entry.number("buffer") for entry in _kept_metadata(model)}
    return _Numbers(
        operators=tuple(operators),
        tensors=tuple(sorted(tensors)),
        subgraphs=(MAIN, *sorted(subgraphs)),
        buffers=tuple(number for number in sorted(buffers) if model.buffers[number] is not None),
        opcodes=tuple(sorted(referred([*own, *whole], "opcode"))),
    )


def _kept_metadata(model: TfliteModel) -> list[Table]:
    entries = model.root.tables("metadata")
    return [entry for entry in entries if entry.text("name") in _KEPT_METADATA]


def _root(
    model: TfliteModel,
    numbers: _Numbers,
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    behind: bool,
) -> Table:
    new = {
        # Buffer 0 is empty, and stands for all buffers that are.
        "buffer": {
            **dict.fromkeys(range(len(model.buffers)), 0),
            **_renumbering(numbers.buffers, 1),
        },
        "opcode": _renumbering(numbers.opcodes),
        "subgraph": _renumbering(numbers.subgraphs),
        "tensor": _renumbering(numbers.tensors),
    }
    codes = model.root.tables("operator_codes")
    # Whoever looks at metadata looks for them in the flatbuffer.
    described = {entry.number("buffer") for entry in _kept_metadata(model)}
    # Tensors of subgraphs that operators run keep their numbers.
    of_bodies = {kind: new[kind] for kind in ("buffer", "opcode", "subgraph")}
    bodies = [renumbered(model.subgraphs[number], of_bodies) for number in numbers.subgraphs[1:]]
    main = _main(model, numbers, inputs, outputs, new)
    values: dict[str, Value | None] = {
        "operator_codes": tuple(codes[number] for number in numbers.opcodes),
        "subgraphs": tuple(_settled(model, subgraph, behind) for subgraph in (main, *bodies)),
        "buffers": (
            Table("Buffer", {}),
            *(
                _buffer(content, behind and number not in described)
                for number in numbers.buffers
                if (content := model.buffers[number])
            ),
        ),
        "metadata": tuple(renumbered(entry, new) for entry in _kept_metadata(model)) or None,
        "metadata_buffer": None,
        "signature_defs": tuple(_signatures(model, inputs, outputs, new)) or None,
    }
    return model.root.changed(values)


def _renumbering(numbers: Sequence[int], start: int = 0) -> dict[int, int]:
    return {old: new for new, old in enumerate(numbers, start)}


def _main(
    model: TfliteModel,
    numbers: _Numbers,
    inputs: Sequence[int],
    outputs: Sequence[int],
    new: Mapping[str, Mapping[int, int]],
) -> Table:
    tensors = model.main.tables("tensors")
    operators = model.main.tables("operators")
    number_of = new["tensor"]
    return model.main.changed(
        {
            "tensors": tuple(
                renumbered(_tensor(model, number, tensors[number]), new)
                for number in numbers.tensors
            ),
            "operators": tuple(renumbered(operators[number], new) for number in numbers.operators),
            "inputs": packed("tensor", *(number_of[number] for number in inputs)),
            "outputs": packed("tensor", *(number_of[number] for number in outputs)),
        }
    )


def _tensor(model: TfliteModel, number: int, tensor: Table) -> Table:
    """Return a tensor with the name and the sizes that the plan gives it; others are not open."""
    changes: dict[str, Value | None] = {}
    if tensor.text("name") != model.tensor_names[number]:
        changes["name"] = model.tensor_names[number].encode()
    shape, symbols = model.shapes.get(number), model.symbols.get(number)
    if shape is not None and (
        shape != tensor.numbers("shape") or "shape_signature" in tensor.values
    ):
        changes |= {"shape": packed("int", *shape), "shape_signature": None}
    if shape is not None and symbols:
        changes["shape_signature"] = packed("int", *replace_open(shape, symbols, -1))
    return tensor.changed(changes)


def _settled(model: TfliteModel, subgraph: Table, behind: bool) -> Table:
    """Return a subgraph whose operators' settings are where the file will have them.

    Numbers of debug information are left out, as that information is.
    """
    operators = tuple(
        _with_options(operator, large_options(model.path, operator), behind)
        for operator in subgraph.tables("operators")
    )
    return subgraph.changed({"operators": operators, "debug_metadata_index": None})


def _with_options(operator: Table, large: ByteRange | None, behind: bool) -> Table:
    changes: dict[str, Value | None] = {"debug_metadata_index": None}
    if large and behind:
        changes["large_custom_options_offset"] = large
    elif large:
        changes |= {"large_custom_options_offset": None, "large_custom_options_size": None}
        changes["custom_options"] = large
    return operator.changed(changes)


def _buffer(content: ByteRange | Pieces, behind: bool) -> Table:
    if behind:
        return Table("Buffer", {"offset": content, "size": packed("ulong", content.length)})
    return Table("Buffer", {"data": content})


def _signatures(
    model: TfliteModel,
    inputs: Sequence[int],
    outputs: Sequence[int],
    new: Mapping[str, Mapping[int, int]],
) -> Iterator[Table]:
    """Yield the signatures of the model that also hold for a sub-model: those of all of it."""
    if (*inputs,) != model.main.numbers("inputs") or (*outputs,) != model.main.numbers("outputs"):
        return
    number_of = new["tensor"]
    for signature in model.root.tables("signature_defs"):
        sides = {side: signature.tables(side) for side in ("inputs", "outputs")}
        named = {entry.number("tensor_index") for side in sides.values() for entry in side}
        if signature.number("subgraph_index") == MAIN and named <= number_of.keys():
            yield signature.changed(
                {
                    side: tuple(
                        entry.changed({"tensor_index": packed("uint", number_of[number])})
                        for entry in entries
                        for number in (entry.number("tensor_index"),)
                    )
                    for side, entries in sides.items()
                }
            )
