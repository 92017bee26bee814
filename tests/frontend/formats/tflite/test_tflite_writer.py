from __future__ import annotations

from typing import Any

import pytest
from tflite_models import NAMES, edited, model_file, written

from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.pieces import write_pieces
from rankslice.frontend.formats.tflite.builder import ALIGNMENT, flatbuffer
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, packed, read_tables
from rankslice.frontend.partition.partition import Partition, partition


def content(table: Table) -> Any:
    """Return what a table says, wherever it stands; payloads as bytes."""
    return (table.kind, {name: _plain(value) for name, value in table.values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        return content(value)
    if isinstance(value, tuple):
        return [content(table) for table in value]
    if isinstance(value, ByteRange):
        with value.path.open("rb") as file:
            file.seek(value.offset)
            return file.read(value.length)
    return value


def tables(path):
    with FlatFile(path) as file:
        return read_tables(file)


def cut(name: str, ranks: int) -> tuple[Any, Partition]:
    model = read_tflite(model_file(name))
    layers = model.graph.layers
    return model, partition(
        model.graph, {layer.name: ranks * n // len(layers) for n, layer in enumerate(layers)}
    )


@pytest.mark.parametrize("name", NAMES)
def test_tables_that_are_written_say_what_those_read_said(name, tmp_path):
    root = tables(model_file(name))
    write_pieces(flatbuffer(root), tmp_path / "copy.tflite")
    assert content(root) == content(tables(tmp_path / "copy.tflite"))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"outside", "same_names"}))
def test_a_model_in_one_segment_says_what_the_whole_model_says(name, tmp_path):
    model, parts = cut(name, 1)
    (segment,) = parts.segments
    copy = read_tflite(written(model, segment, tmp_path / "all.tflite"))
    assert len(model.graph.layers) == len(copy.graph.layers)
    for expected, found in zip(
        model.main.tables("operators"), copy.main.tables("operators"), strict=True
    ):
        kept = [content(table.changed({"opcode_index": None})) for table in (expected, found)]
        for _, fields in kept:
            for numbers in ("inputs", "outputs", "intermediates", "builtin_options"):
                fields.pop(numbers, None)
        assert kept[0] == kept[1]
    assert [(layer.name, layer.settings) for layer in model.graph.layers] == [
        (layer.name, layer.settings) for layer in copy.graph.layers
    ]
    sizes = [sorted(weight.nbytes for weight in item.graph.weights) for item in (model, copy)]
    assert sizes[0] == sizes[1]


def test_quantisation_is_kept_for_each_channel(tmp_path):
    model, parts = cut("cnn_int8", 3)
    expected = {
        table.text("name"): content(table.table("quantization"))
        for table in model.main.tables("tensors")
    }
    per_channel = 0
    for number, segment in enumerate(parts.segments):
        part = read_tflite(written(model, segment, tmp_path / f"{number}.tflite"))
        for table in part.main.tables("tensors"):
            found = table.table("quantization")
            assert expected[table.text("name")] == content(found)
            per_channel += len(found.numbers("zero_point")) > 1
    assert 6 < per_channel


def test_sparse_weights_stay_sparse(tmp_path):
    model, parts = cut("sparse", 2)
    part = read_tflite(written(model, parts.segments[1], tmp_path / "part.tflite"))
    (found,) = [t for t in part.main.tables("tensors") if t.table("sparsity")]
    (expected,) = [t for t in model.main.tables("tensors") if t.table("sparsity")]
    assert content(expected.table("sparsity")) == content(found.table("sparsity"))


def test_operators_keep_their_versions_and_only_those_needed_are_named(tmp_path):
    model, parts = cut("custom_in_between", 3)
    codes = [
        [
            (code.text("custom_code"), code.number("version", 1))
            for code in read_tflite(written(model, s, tmp_path / "p.tflite")).root.tables(
                "operator_codes"
            )
        ]
        for s in parts.segments
    ]
    assert [[("", 1)], [("Vendor.Special", 5)], [("", 1)]] == codes


def test_custom_operators_keep_settings_work_memory_and_omitted_inputs(tmp_path):
    model, parts = cut("custom_in_between", 3)
    part = read_tflite(written(model, parts.segments[1], tmp_path / "part.tflite"))
    (operator,) = part.main.tables("operators")
    assert b"opaque settings" == content(operator)[1]["custom_options"]
    assert -1 == operator.numbers("inputs")[1]
    assert 1 == len(operator.numbers("intermediates"))


def test_an_operator_of_velas_keeps_all_that_it_reads(tmp_path):
    model, parts = cut("ethos_u", 2)
    part = read_tflite(written(model, parts.segments[0], tmp_path / "part.tflite"))
    names = [tensor.name for tensor in part.graph.layers[0].operands]
    assert [
        "_split_1_command_stream",
        "_split_1_flash",
        "_split_1_scratch",
        "_split_1_scratch_fast",
        "image",
    ] == names
    assert [816, 2604, 0, 0] == [w.nbytes for w in part.graph.layers[0].operands[:4]]


def test_only_the_bodies_that_are_run_are_copied(tmp_path):
    model, parts = cut("control_flow", 7)
    counts = {
        segment.layers[0].op: len(
            read_tflite(written(model, segment, tmp_path / "part.tflite")).subgraphs
        )
        for segment in parts.segments
    }
    assert {"FULLY_CONNECTED": 1, "IF": 3, "WHILE": 3, "RELU": 1}.items() <= counts.items()


def test_weights_that_tensors_share_are_written_once(tmp_path):
    model, parts = cut("many_outputs", 1)
    part = tables(written(model, parts.segments[0], tmp_path / "part.tflite"))
    shared = [b for b in part.tables("buffers") if (p := b.payload("data")) and p.length == 256]
    assert 1 == len(shared)


def test_buffers_are_aligned(tmp_path):
    model, parts = cut("cnn_int16x8", 4)
    for segment in parts.segments:
        part = read_tflite(written(model, segment, tmp_path / "part.tflite"))
        assert {0} == {found.offset % ALIGNMENT for found in part.buffers if found}


def test_buffer_zero_is_empty(tmp_path):
    model, parts = cut("ethos_u", 1)
    part = read_tflite(written(model, parts.segments[0], tmp_path / "part.tflite"))
    assert None is part.buffers[0]


@pytest.mark.parametrize("limit", [100, 1 << 30])
def test_writing_twice_gives_the_same_bytes(limit, tmp_path):
    model, parts = cut("control_flow", 3)
    first, second = (
        [written(model, s, tmp_path / "p.tflite", limit=limit).read_bytes() for s in parts.segments]
        for _ in range(2)
    )
    assert first == second


def test_large_sub_models_have_their_weights_behind_the_flatbuffer(tmp_path):
    model, parts = cut("cnn_float32", 2)
    path = written(model, parts.segments[0], tmp_path / "part.tflite", limit=100)
    part = read_tflite(path)
    buffers = part.root.tables("buffers")[1:]
    described = {entry.number("buffer") - 1 for entry in part.root.tables("metadata")}
    weights = {w.data for layer in parts.segments[0].layers for w in layer.weights}
    behind = [part.buffers[n + 1] for n in range(len(buffers)) if n not in described]
    assert described == {n for n, buffer in enumerate(buffers) if buffer.payload("data")}
    assert sorted(data.length for data in weights) == sorted(data.length for data in behind)


def test_settings_stored_behind_the_flatbuffer_are_found(tmp_path):
    def settings_behind(main: Table) -> Table:
        first, special, last = main.tables("operators")
        moved = special.changed(
            {
                "custom_options": None,
                "large_custom_options_offset": special.payload("custom_options"),
                "large_custom_options_size": packed("ulong", 15),
            }
        )
        return main.changed({"operators": (first, moved, last)})

    model = read_tflite(edited("custom_in_between", tmp_path, settings_behind))
    ranks = {layer.name: n for n, layer in enumerate(model.graph.layers)}
    segment = partition(model.graph, ranks).segments[1]
    part = read_tflite(written(model, segment, tmp_path / "part.tflite"))
    assert b"opaque settings" == content(part.main.tables("operators")[0])[1]["custom_options"]


def test_inputs_and_outputs_stand_in_the_plans_order(tmp_path):
    model, parts = cut("many_outputs", 4)
    for segment in parts.segments:
        part = read_tflite(written(model, segment, tmp_path / "part.tflite")).graph
        assert [t.name for t in segment.inputs] == [t.name for t in part.inputs]
        assert [t.name for t in segment.outputs] == [t.name for t in part.outputs]


def test_tensors_have_the_plans_names_even_if_the_file_has_others(tmp_path):
    model, parts = cut("same_names", 3)
    part = read_tflite(written(model, parts.segments[0], tmp_path / "part.tflite"))
    assert ["tensor_0"] == [tensor.name for tensor in part.graph.inputs]
    assert {t.name for t in parts.segments[0].outputs} == {t.name for t in part.graph.outputs}


def test_signatures_are_kept_by_a_sub_model_with_the_models_inputs_and_outputs(tmp_path):
    model, parts = cut("cnn_int8", 1)
    whole = tables(written(model, parts.segments[0], tmp_path / "part.tflite"))
    assert ["serving_default"] == [
        item.text("signature_key") for item in whole.tables("signature_defs")
    ]
    model, parts = cut("cnn_int8", 2)
    part = tables(written(model, parts.segments[0], tmp_path / "part.tflite"))
    assert () == part.tables("signature_defs")


def test_metadata_that_still_hold_are_kept(tmp_path):
    model, parts = cut("cnn_int8", 2)
    part = tables(written(model, parts.segments[0], tmp_path / "part.tflite"))
    names = [entry.text("name") for entry in part.tables("metadata")]
    assert ["min_runtime_version", "CONVERSION_METADATA"] == names
    entry = part.tables("metadata")[0]
    stored = part.tables("buffers")[entry.number("buffer")].payload("data")
    assert 16 == stored.length


def test_an_output_that_is_an_input_or_a_weight_is_given_out(tmp_path):
    def more(main):
        shapes = [tensor.numbers("shape") for tensor in main.tables("tensors")]
        both = (*main.numbers("outputs"), shapes.index((5, 12)))
        return main.changed({"outputs": packed("tensor", *both)})

    model = read_tflite(edited("cnn_float32", tmp_path, more))
    ranks = {layer.name: n % 2 for n, layer in enumerate(model.graph.layers)}
    segment = partition(model.graph, ranks).segments[-1]
    part = read_tflite(written(model, segment, tmp_path / "part.tflite"))
    assert 2 == len(part.graph.outputs)
    assert part.graph.outputs[1].name in {weight.name for weight in part.graph.weights}


def test_sizes_that_the_model_leaves_open_are_fixed(tmp_path):
    model, parts = cut("open_batch", 2)
    for segment in parts.segments:
        part = read_tflite(written(model, segment, tmp_path / "part.tflite"))
        assert {()} == {table.numbers("shape_signature") for table in part.main.tables("tensors")}
        assert [t.shape for t in segment.outputs] == [t.shape for t in part.graph.outputs]
