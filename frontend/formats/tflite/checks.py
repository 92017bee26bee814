"""What is wrong with a TensorFlow Lite model, as far as its tables tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rankslice.framework.errors import Mistake
from rankslice.framework.wording import listed, quoted
from rankslice.frontend.formats.tflite.references import references
from rankslice.frontend.formats.tflite.wire import Table

_VERSION = 3
_COMPRESSED = "COMPRESSION_METADATA"

_MAX_SHOWN = 5
"""At most so many wrong numbers of a subgraph are shown: with more, the whole file is damaged."""

_CODE_OUTSIDE = "DISPATCH_OP"


def header_mistakes(where: str, model: Table) -> Iterator[Mistake]:
    version = model.number("version")
    if version != _VERSION:
        yield Mistake(where, f"is of version {version}", f"expected {_VERSION}")
    if not model.tables("buffers"):
        yield Mistake(where, "has no buffers", "expected at least the empty one")
    subgraphs = model.tables("subgraphs")
    if not subgraphs or not subgraphs[0].tables("operators"):
        yield Mistake(where, "has no layers")
    elif not subgraphs[0].numbers("outputs"):
        yield Mistake(where, "has no outputs")
    if any(entry.text("name") == _COMPRESSED for entry in model.tables("metadata")):
        found = "its weights are compressed for TensorFlow Lite Micro, so it cannot be cut"
        yield Mistake(where, found, "slice it before that step")
    if any(code.text("custom_code") == _CODE_OUTSIDE for code in model.tables("operator_codes")):
        found = "it holds code for one accelerator, so it cannot be cut"
        yield Mistake(where, found, "slice it before it is compiled")
    if model.tables("external_buffers"):
        files = [group.text("name") for group in model.tables("external_buffer_groups")]
        found = f"its weights lie in other files: {listed(files) or 'which are not named'}"
        yield Mistake(where, found, "expected them in the model file")


def reference_mistakes(where: str, model: Table) -> Iterator[Mistake]:
    subgraphs = model.tables("subgraphs")
    counts = {
        "subgraph": len(subgraphs),
        "buffer": len(model.tables("buffers")),
        "opcode": len(model.tables("operator_codes")),
    }
    for number, subgraph in enumerate(subgraphs):
        counts["tensor"] = len(subgraph.tables("tensors"))
        wrong = {
            reference
            for reference in references(subgraph)
            if reference.number >= counts[reference.kind]
            or (reference.number < 0 and reference.kind in ("buffer", "opcode"))
            or (reference.number <= 0 and reference.kind == "subgraph")
            or (reference.number < 0 and reference.table == "SubGraph")
            or reference.number < -1  # -1 stands for no tensor
        }
        order = sorted(
            wrong, key=lambda reference: (reference.table, reference.field, reference.number)
        )
        for reference in order[:_MAX_SHOWN]:
            what = f"{reference.table}.{reference.field} names {reference.kind} {reference.number}"
            yield Mistake(f"{where}: subgraph {number}", f"{what}, which cannot be")
    for entry in model.tables("metadata"):
        if entry.number("buffer") >= counts["buffer"]:
            found = f"names buffer {entry.number('buffer')}, which cannot be"
            yield Mistake(f"{where}: metadata {quoted(entry.text('name'))}", found)


def flow_mistakes(
    where: str, main: Table, layers: Sequence[str], tensors: Sequence[str]
) -> Iterator[Mistake]:
    operators = main.tables("operators")
    makers: dict[int, int] = dict.fromkeys(main.numbers("inputs"), -1)
    for position, operator in enumerate(operators):
        for number in operator.numbers("outputs"):
            if number in makers:
                yield Mistake(f"{where}: tensor {quoted(tensors[number])}", "is made twice")
            if number >= 0:
                makers[number] = position
    for position, operator in enumerate(operators):
        for number in operator.numbers("inputs"):
            if makers.get(number, -1) >= position:
                found = f"reads {quoted(tensors[number])}, which a later layer makes"
                yield Mistake(f"{where}: layer {quoted(layers[position])}", found)
    for number, count in Counter(main.numbers("inputs")).items():
        if count > 1:
            yield Mistake(f"{where}: input {quoted(tensors[number])}", f"is listed {count} times")
