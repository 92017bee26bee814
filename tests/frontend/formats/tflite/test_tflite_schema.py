"""Our transcription of the schema against the code that the flatbuffers compiler makes of it."""

from __future__ import annotations

import inspect
import re
import struct
import warnings

import pytest

from rankslice.frontend.formats.tflite.schema import (
    DTYPES,
    OPERATORS,
    SCALARS,
    TABLES,
    UNIONS,
    Field,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    generated = pytest.importorskip(
        "ai_edge_litert.schema_py_generated",
        reason="ai-edge-litert is not installed (extra: litert)",
    )

WIDTHS = {"Bool": 1, "Int8": 1, "Uint8": 1, "Int32": 4, "Uint32": 4, "Float32": 4}
WIDTHS |= {"Int64": 8, "Uint64": 8, "Float64": 8, "UOffsetTRelative": 4}
OLD = {"new_height", "new_width", "deprecated_tag"}


def members(name: str) -> dict[str, int]:
    found = vars(getattr(generated, name))
    return {key: value for key, value in found.items() if isinstance(value, int)}


def slots(table: str) -> dict[int, tuple[str, str]]:
    """Return a table's fields by number: name in lower case without underscores, kind."""
    return {
        number: (name.lower(), kind)
        for function, code in SOURCES.items()
        if (name := function.removeprefix(f"{table}Add")) != function
        and (found := re.search(r"Prepend(\w+)Slot\((\d+)", code))
        for kind, number in [(found[1], int(found[2]))]
    }


SOURCES = {
    name: inspect.getsource(value)
    for name, value in vars(generated).items()
    if inspect.isfunction(value) and "Add" in name
}


def width(field: Field) -> int:
    return struct.calcsize(SCALARS[field.type]) if field.is_scalar else 4


def test_operators_have_the_numbers_of_the_schema():
    assert members("BuiltinOperator") == {name: n for n, name in enumerate(OPERATORS)}


def test_element_types_have_the_numbers_of_the_schema():
    assert [name.lower().replace("_", "") for name in members("TensorType")] == list(DTYPES)


@pytest.mark.parametrize("union", UNIONS)
def test_unions_have_the_members_of_the_schema(union):
    found = {name: number for name, number in members(union).items() if name != "NONE"}
    assert found == {name: number for number, name in enumerate(UNIONS[union], 1)}


def test_all_tables_of_the_schema_are_known():
    tables = {
        name.removesuffix("Start")
        for name, value in vars(generated).items()
        if name.endswith("Start") and inspect.isfunction(value)
    }
    assert tables == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_fields_of_the_schema(table):
    expected = {number: (name, WIDTHS[kind]) for number, (name, kind) in slots(table).items()}
    found = {
        number: (field.name.replace("_", ""), width(field))
        for number, field in enumerate(TABLES[table])
        if field.name not in OLD
    }
    assert expected == found


@pytest.mark.parametrize("table", [name for name, fields in TABLES.items() if fields])
def test_vectors_have_elements_of_the_schemas_size(table):
    for field in TABLES[table]:
        if not field.is_vector and field.type != "payload":
            continue
        camel = "".join(part.capitalize() for part in field.name.split("_"))
        starts = {name.lower(): value for name, value in vars(generated).items()}
        start = starts[f"{table}Start{camel}Vector".lower()]
        found = re.search(r"StartVector\((\d+),", inspect.getsource(start))
        assert found
        size = 1 if field.type == "payload" else struct.calcsize(SCALARS.get(field.type, "i"))
        assert size == int(found[1]), field.name


ENUMS = {
    "fused_activation_function": ("MulOptions", "ActivationFunctionType"),
    "padding": ("Pool2DOptions", "Padding"),
    "weights_format": ("FullyConnectedOptions", "FullyConnectedOptionsWeightsFormat"),
    "kernel_type": ("LSTMOptions", "LSTMKernelType"),
    "combiner": ("EmbeddingLookupSparseOptions", "CombinerType"),
    "mode": ("MirrorPadOptions", "MirrorPadMode"),
    "type": ("LSHProjectionOptions", "LSHProjectionType"),
    "reduce_function": ("ReduceWindowOptions", "ReduceWindowFunction"),
}


@pytest.mark.parametrize("name", ENUMS)
def test_values_of_settings_have_the_names_of_the_schema(name):
    table, enum = ENUMS[name]
    (names,) = (field.names for field in TABLES[table] if field.name == name)
    assert members(enum) == {name: number for number, name in enumerate(names)}


@pytest.mark.parametrize("table", sorted({*UNIONS["BuiltinOptions"], *UNIONS["BuiltinOptions2"]}))
def test_settings_that_are_left_out_have_the_schemas_values(table):
    for field in TABLES[table]:
        if not field.is_scalar or field.name in OLD:
            continue
        camel = "".join(part.capitalize() for part in field.name.split("_"))
        getters = {name.lower(): value for name, value in vars(getattr(generated, table)).items()}
        default = inspect.getsource(getters[camel.lower()]).split()[-1]
        value = {"True": 1, "False": 0}.get(default) if default.isalpha() else float(default)
        assert value == field.default, field.name
