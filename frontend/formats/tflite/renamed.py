"""A ``.tflite`` file whose inputs and outputs have given names, and are tensors of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.graph import Tensor
from rankslice.frontend.formats.input_shapes import replace_open
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.formats.tflite.builder import flatbuffer
from rankslice.frontend.formats.tflite.editor import Editor
from rankslice.frontend.formats.tflite.operators import is_doubtful, tflite_facts
from rankslice.frontend.formats.tflite.references import MAIN
from rankslice.frontend.formats.tflite.schema import DTYPES
from rankslice.frontend.formats.tflite.shapes import dtype_of
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, Value, packed, read_tables

_RESHAPE, _CAST = "RESHAPE", "CAST"


def renamed_model(path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> SubModelFiles:
    """Return a file like another one with other names of inputs and outputs.

    Converters let an output be an input, or the same as another one, where nothing is computed
    in between, and leave out inputs that nobody reads. Here each output gets a tensor of its own,
    filled by an operator that copies, and each input is there. What has open sizes keeps them.

    Args:
        path: the file; its inputs are called ``input_0``, ``input_1``, ... as far as they are
            there, its outputs have the order of ``outputs``.
    """
    with FlatFile(path) as file:
        root = read_tables(file)
    editor, main = _Renaming(root), root.tables("subgraphs")[MAIN]
    input_numbers = editor.inputs(main.numbers("inputs"), inputs)
    output_numbers = editor.outputs(main.numbers("outputs"), {*input_numbers})
    raise_mistakes(editor.mistakes(path.name, input_numbers, inputs))
    raise_mistakes(editor.mistakes(path.name, output_numbers, outputs))
    editor.rename(dict(zip((*input_numbers, *output_numbers), (*inputs, *outputs), strict=True)))
    numbers = {
        "inputs": packed("tensor", *input_numbers),
        "outputs": packed("tensor", *output_numbers),
    }
    changed = editor.model(numbers, {"signature_defs": None, "description": None})  # of old names
    return SubModelFiles(
        tuple(flatbuffer(changed)), facts=tflite_facts(changed), is_doubtful=is_doubtful(changed)
    )


class _Renaming(Editor):
    def inputs(self, in_file: Sequence[int], wanted: Sequence[Tensor]) -> list[int]:
        """Return the numbers of the inputs in the order that is wanted; add those left out."""
        names = (self.tensors[number].text("name") for number in in_file)
        plain = (name.removeprefix("serving_default_").removesuffix(":0") for name in names)
        by_name = dict(zip(plain, in_file, strict=True))
        numbers = []
        for position, tensor in enumerate(wanted):
            name = f"input_{position}"
            if name not in by_name:
                values: dict[str, Value] = {
                    "shape": packed("int", *(tensor.shape or ())),
                    "type": packed("byte", DTYPES.index(tensor.dtype)),
                    "name": name.encode(),
                }
                if tensor.is_open:
                    values["shape_signature"] = packed("int", *_signature(tensor))
                self.tensor(Table("Tensor", values))
            numbers.append(by_name.get(name, len(self.tensors) - 1))
        return numbers

    def outputs(self, in_file: Sequence[int], brought: set[int]) -> list[int]:
        """Return the number of a tensor for each output that nothing else is."""
        made = {number for operator in self.operators for number in operator.numbers("outputs")}
        numbers: list[int] = []
        for number in in_file:
            is_own = number in made and number not in numbers and number not in brought
            numbers.append(number if is_own else self._copy(number))
        return numbers

    def _copy(self, number: int) -> int:
        """Append an operator that copies a tensor; return the number of the copy."""
        original = self.tensors[number]
        copy = original.changed({"buffer": None, "is_variable": None})
        copied = self.tensor(copy)
        kind = (original.number("type"),)
        settings: dict[str, tuple[int, ...]]
        if -1 in original.numbers("shape_signature"):
            # RESHAPE cannot leave several sizes open; CAST can, and copies what has the type.
            name, settings = _CAST, {"in_data_type": kind, "out_data_type": kind}
        else:
            name, settings = _RESHAPE, {"new_shape": original.numbers("shape")}
        self.operator(name, [number], copied, settings)
        return copied

    def mistakes(
        self, where: str, numbers: Sequence[int], wanted: Sequence[Tensor]
    ) -> Iterator[Mistake]:
        for number, tensor in zip(numbers, wanted, strict=True):
            table, wanted_shape = self.tensors[number], _signature(tensor)
            declared = table.numbers("shape_signature") if tensor.is_open else ()
            dtype, shape = dtype_of(table), declared or table.numbers("shape")
            # What may be open may be so in the file, or not.
            pairs = zip(shape, wanted_shape, strict=False)
            fits = all(-1 in pair or pair[0] == pair[1] for pair in pairs)
            if dtype != tensor.dtype or len(shape) != len(wanted_shape) or not fits:
                here = f"{where}: tensor {tensor.name!r}"
                expected = f"expected {tensor.dtype}{list(tensor.shape or ())}"
                yield Mistake(here, f"was converted to {dtype}{list(shape)}", expected)

    def rename(self, names: dict[int, Tensor]) -> None:
        """Give tensors their names; others that are called so get another one."""
        taken = {tensor.name for tensor in names.values()}
        for number, table in enumerate(self.tensors):
            name = names[number].name if number in names else table.text("name")
            while number not in names and name in taken:
                name += "'"
            if name != table.text("name"):
                self.tensors[number] = table.changed({"name": name.encode()})


def _signature(tensor: Tensor) -> tuple[int, ...]:
    return replace_open(tensor.shape or (), tensor.symbols, -1)
