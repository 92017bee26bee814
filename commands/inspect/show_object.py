"""A model object, printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankslice.commands.inspect.show import plain_table, print_parts
from rankslice.framework.quantities import bytes_text
from rankslice.framework.wording import printable
from rankslice.frontend.formats.tflite.object import (
    BufferEntry,
    MetadataEntry,
    ModelObject,
    OperatorCodeEntry,
    OperatorEntry,
    Quantisation,
    SignatureEntry,
    SubgraphEntry,
    TensorEntry,
)
from rankslice.frontend.formats.tflite.settings import Setting

MAX_ROWS = 100
"""Rows of a table that are printed; the JSON has all."""

_MAX_SUBGRAPHS = 10
_MAX_NUMBERS = 8
_LONGEST_TEXT = 60

_Entry = TypeVar("_Entry")

_RIGHT = ("#", "code", "number", "version", "uses", "buffer", "values", "size", "at byte", "time")
"""Headings of columns that hold one number."""


def print_object(found: ModelObject, console: Console) -> None:
    """Print a file's tables: operator codes, subgraphs with operators and tensors, buffers."""
    print_parts(_parts(found), console)


def _parts(found: ModelObject) -> Iterator[Table | str]:
    yield _head(found)
    yield from _code_table(found)
    for subgraph in found.subgraphs[:_MAX_SUBGRAPHS]:
        yield from _subgraph(subgraph)
    yield from _more(len(found.subgraphs) - _MAX_SUBGRAPHS, "subgraphs")
    yield from _buffers(found)
    if found.metadata:
        yield from rows("metadata", ("name", "buffer", "size"), found.metadata, _metadata)
    if found.signatures:
        headings = ("signature", "subgraph", "inputs (name: tensor)", "outputs (name: tensor)")
        yield from rows("signatures", headings, found.signatures, _signature)
    for name in found.external_buffer_groups:
        yield f"weights lie in another file: {_short(name)}"


def _head(found: ModelObject) -> str:
    about = f", {_short(found.description)}" if found.description else ""
    size = bytes_text(found.file_bytes)
    return f"{printable(found.file)}: {size}, schema version {found.schema_version}{about}"


def _code_table(found: ModelObject) -> Iterator[Table | str]:
    headings = ("#", "operator", "custom code", "number", "version", "uses")
    yield from rows("operator codes", headings, tuple(enumerate(found.operator_codes)), _code)


def _code(numbered: tuple[int, OperatorCodeEntry]) -> tuple[str, ...]:
    index, code = numbered
    counts = (code.number, code.version, code.uses)
    return (str(index), code.name, _short(code.custom_code), *map(str, counts))


def _subgraph(subgraph: SubgraphEntry) -> Iterator[Table | str]:
    name = f"subgraph {subgraph.number}{f' {_short(subgraph.name)}' if subgraph.name else ''}"
    yield from rows(
        f"{name}: operators",
        ("#", "operator", "code", "inputs", "outputs", "settings"),
        subgraph.operators,
        _operator,
    )
    yield from rows(
        f"{name}: tensors",
        ("#", "tensor", "type", "shape", "signature", "buffer", "values", "quantisation"),
        subgraph.tensors,
        _tensor,
    )
    inputs, outputs = numbers_text(subgraph.inputs), numbers_text(subgraph.outputs)
    yield f"inputs of {name}: {inputs or 'none'}; outputs: {outputs or 'none'}"


def _operator(operator: OperatorEntry) -> tuple[str, ...]:
    tensors = (numbers_text(operator.inputs), numbers_text(operator.outputs))
    return (
        str(operator.number),
        _short(operator.name),
        str(operator.opcode),
        *tensors,
        _settings(operator),
    )


def _tensor(tensor: TensorEntry) -> tuple[str, ...]:
    notes = ["variable"] * tensor.is_variable + ["sparse"] * tensor.is_sparse
    return (
        str(tensor.number),
        _short(tensor.name),
        " ".join([tensor.dtype, *notes]),
        _shape(tensor.shape),
        _shape(tensor.shape_signature),
        str(tensor.buffer),
        _size(tensor.constant_bytes),
        _quantisation(tensor.quantisation),
    )


def _buffers(found: ModelObject) -> Iterator[Table | str]:
    filled = [buffer for buffer in found.buffers if buffer.bytes]
    headings = ("#", "size", "at byte", "used by (subgraph.tensor, or metadata)")
    if filled:
        yield from rows("buffers", headings, filled, _buffer)
    empty = len(found.buffers) - len(filled)
    total = bytes_text(sum(buffer.bytes for buffer in filled))
    yield f"{len(found.buffers)} buffers, {empty} of them empty; the others hold {total}"


def _buffer(buffer: BufferEntry) -> tuple[str, ...]:
    users = ", ".join(map(_short, buffer.users[:_MAX_NUMBERS]))
    more = ", ..." if len(buffer.users) > _MAX_NUMBERS else ""
    return str(buffer.number), _size(buffer.bytes), str(buffer.offset), users + more


def _metadata(entry: MetadataEntry) -> tuple[str, ...]:
    return _short(entry.name), str(entry.buffer), _size(entry.bytes)


def _signature(entry: SignatureEntry) -> tuple[str, ...]:
    return _short(entry.key), str(entry.subgraph), _named(entry.inputs), _named(entry.outputs)


def rows(
    title: str,
    headings: Sequence[str],
    entries: Sequence[_Entry],
    cells: Callable[[_Entry], tuple[str, ...]],
) -> Iterator[Table | str]:
    """Yield a table of the first entries, and how many there are beyond."""
    table = plain_table(title)
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading in _RIGHT else "left"
        table.add_column(heading, justify=side, overflow="fold")
    for entry in entries[:MAX_ROWS]:
        table.add_row(*map(Text, cells(entry)))
    yield table
    yield from _more(len(entries) - MAX_ROWS, "rows")


def _more(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"... and {count} more {what}; --json FILE has all"


def numbers_text(numbers: Sequence[int]) -> str:
    """Return numbers of tensors: ``0 8 7``; -1, one that is left out, is a dash."""
    shown = ["-" if number < 0 else str(number) for number in numbers[:_MAX_NUMBERS]]
    left = len(numbers) - len(shown)
    return " ".join([*shown, *([f"... ({len(numbers)} in all)"] if left else [])])


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else _short("x".join(map(str, shape))) or "scalar"


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}..."


def _size(nbytes: int) -> str:
    return bytes_text(nbytes) if nbytes else ""


def _settings(operator: OperatorEntry) -> str:
    texts = [f"{name}={_setting(value)}" for name, value in operator.options.items() if value != []]
    if operator.custom_options_bytes:
        texts.append(f"{bytes_text(operator.custom_options_bytes)} of custom options")
    return ", ".join(texts)


def _setting(value: Setting) -> str:
    if isinstance(value, list):
        shown = ", ".join(f"{item:g}" for item in value[:_MAX_NUMBERS])
        return f"[{shown}{', ...' if len(value) > _MAX_NUMBERS else ''}]"
    if isinstance(value, str):
        return _short(value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _quantisation(found: Quantisation | None) -> str:
    if found is None:
        return ""
    texts = [f"scale {_spread(found.scale)}"] if found.scale else []
    if found.axis is not None:
        texts = [f"{len(found.scale)} scales {_spread(found.scale)} along axis {found.axis}"]
    if found.zero_point and (any(found.zero_point) or found.axis is None):
        texts.append(f"zero point {_spread(found.zero_point)}")
    if found.minimum and found.maximum:
        texts.append(f"seen {min(found.minimum):.4g}..{max(found.maximum):.4g}")
    return ", ".join([*texts, *([found.details] if found.details else [])])


def _spread(numbers: Sequence[float]) -> str:
    """Return a number, or the smallest and largest of several: ``0.0042..0.0046``."""
    return "..".join(dict.fromkeys(f"{end:.4g}" for end in (min(numbers), max(numbers))))


def _named(side: Mapping[str, int]) -> str:
    texts = [f"{_short(name)}: {number}" for name, number in islice(side.items(), _MAX_NUMBERS)]
    return ", ".join([*texts, *(["..."] if len(side) > _MAX_NUMBERS else [])])
