from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from litert import Runner
from strategies import assignments
from tflite_models import edited, model_file, written

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import TfliteModel, read_tflite
from rankslice.frontend.formats.tflite.wire import packed
from rankslice.frontend.formats.tflite.writer import FLATBUFFER_LIMIT
from rankslice.frontend.partition.partition import partition

RUNNABLE = (
    "cnn_float32",
    "cnn_float16",
    "cnn_dynamic",
    "cnn_int8",
    "cnn_int16x8",
    "control_flow",
    "lstm",
    "many_outputs",
    "open_attention",
    "open_attention_int8",
    "open_batch",
    "open_dense",
    "open_dense_dynamic",
    "open_dense_float16",
    "open_dense_int8",
    "open_distributed",
    "open_groups",
    "open_kinds",
    "open_memory",
    "open_permuted",
    "open_permuted_int8",
    "open_products",
    "open_repeated",
    "open_segments",
    "open_sequence",
    "open_strided",
    "open_upward",
    "open_upward_int8",
    "open_words",
    "outside",
    "same_names",
    "sparse",
    "variable_tensor",
)

CUT_ANYWHERE = ("open_batch", "open_dense_int8", "open_groups", "open_words")
"""Models of which ``make test`` tries every cut."""

FRAMES = 3


def assert_slices_give_the_same_bits(
    model: TfliteModel,
    ranks: Mapping[str, int],
    *,
    xnnpack: bool = False,
    limit: int = FLATBUFFER_LIMIT,
    frames: int = FRAMES,
) -> None:
    """Run the unsliced model and its segments one after the other, and compare all outputs."""
    shapes = [tensor.shape for tensor in model.graph.inputs]
    whole = Runner(model.path, xnnpack=xnnpack, shapes=shapes)
    segments = partition(model.graph, ranks).segments
    random = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        parts = [
            Runner(written(model, s, Path(folder) / f"{n}.tflite", limit=limit), xnnpack=xnnpack)
            for n, s in enumerate(segments)
        ]
        for _ in range(frames):
            frame = whole.random_frame(random)
            values = {t.name: array for t, array in zip(model.graph.inputs, frame, strict=True)}
            for segment, part in zip(segments, parts, strict=True):
                made = part.run([values[tensor.name] for tensor in segment.inputs])
                for tensor, array in zip(segment.outputs, made, strict=True):
                    assert (tensor.dtype, tensor.shape) == (array.dtype.name, array.shape)
                    values[tensor.name] = array
            for tensor, expected in zip(model.graph.outputs, whole.run(frame), strict=True):
                np.testing.assert_array_equal(expected, values[tensor.name], strict=True)


@pytest.mark.parametrize("xnnpack", [False, True], ids=["plain", "xnnpack"])
@pytest.mark.parametrize("name", RUNNABLE)
def test_a_segment_for_each_layer_gives_the_bits_of_the_whole_model(name, xnnpack):
    model = read_tflite(model_file(name))
    ranks = {layer.name: number for number, layer in enumerate(model.graph.layers)}
    assert_slices_give_the_same_bits(model, ranks, xnnpack=xnnpack)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in CUT_ANYWHERE else pytest.mark.ci)
        for name in RUNNABLE
        if name.startswith("open_")
    ],
)
def test_every_cut_between_open_sizes_gives_the_bits_of_the_whole_model(name):
    model = read_tflite(model_file(name))
    for cut in range(1, len(model.graph.layers)):
        ranks = {layer.name: int(n >= cut) for n, layer in enumerate(model.graph.layers)}
        assert_slices_give_the_same_bits(model, ranks, frames=1)


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name.startswith("open_")])
def test_open_sizes_are_those_that_a_run_has(name):
    model = read_tflite(model_file(name))
    assert dict(model.shapes) == Runner(model.path, keep_all=True).shapes(model.shapes)


@st.composite
def mapped_models(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    name = draw(st.sampled_from(RUNNABLE))
    return name, draw(assignments(read_tflite(model_file(name)).graph, max_ranks=5))


@given(mapped_models(), st.booleans())
def test_any_mapping_gives_the_bits_of_the_whole_model(mapped, xnnpack):
    name, ranks = mapped
    assert_slices_give_the_same_bits(read_tflite(model_file(name)), ranks, xnnpack=xnnpack)


@given(mapped_models())
@settings(max_examples=10)
def test_weights_stored_behind_the_flatbuffer_give_the_same_bits(mapped):
    name, ranks = mapped
    assert_slices_give_the_same_bits(read_tflite(model_file(name)), ranks, limit=100)


def test_layers_that_share_a_variable_give_the_same_bits_on_one_rank():
    model = read_tflite(model_file("variable"))
    ranks = dict.fromkeys((layer.name for layer in model.graph.layers), 0)
    assert_slices_give_the_same_bits(model, ranks)


def test_layers_before_and_after_a_variable_can_be_on_other_ranks():
    model = read_tflite(model_file("variable"))
    apart = {"MUL_3": 1, "RELU_6": 1, "ADD_7": 1}
    ranks = {layer.name: apart.get(layer.name, 0) for layer in model.graph.layers}
    ranks |= {layer.name: 1 for layer in model.graph.layers if layer.op == "RELU"}
    assert_slices_give_the_same_bits(model, ranks)


def test_a_hash_table_gives_the_same_bits_where_its_layers_are():
    model = read_tflite(model_file("hash_table"))
    ranks = {layer.name: int(layer.op in ("MUL", "ADD")) for layer in model.graph.layers}
    assert_slices_give_the_same_bits(model, ranks)


def test_other_sizes_of_the_inputs_give_the_same_bits():
    path = model_file("open_batch")
    (name,) = (tensor.name for tensor in read_tflite(path).graph.inputs)
    model = read_tflite(path, GivenSizes({name: (3, 8, 8, 1)}))
    ranks = {layer.name: number % 3 for number, layer in enumerate(model.graph.layers)}
    assert (3, 3) == model.graph.outputs[0].shape
    assert_slices_give_the_same_bits(model, ranks)


def test_other_sizes_of_the_inputs_reach_inner_sizes_that_are_open():
    path = model_file("open_dense_int8")
    model = read_tflite(path, GivenSizes({"serving_default_keras_tensor:0": (3, 4, 4, 8)}))
    made = next(layer for layer in model.graph.layers if layer.op == "RESHAPE").outputs
    assert [(48, 8)] == [tensor.shape for tensor in made]
    ranks = {layer.name: number % 3 for number, layer in enumerate(model.graph.layers)}
    assert_slices_give_the_same_bits(model, ranks)


def test_sizes_that_the_layers_do_not_take_are_told(tmp_path):
    def left_open(main):
        first, *others = main.tables("tensors")
        signature = packed("int", -1, 16, 16, 3)
        return main.changed({"tensors": (first.changed({"shape_signature": signature}), *others)})

    path = edited("cnn_float32", tmp_path, left_open)
    name = "serving_default_keras_tensor:0"
    with pytest.raises(RankSliceError, match="LiteRT cannot give the inputs these sizes") as caught:
        read_tflite(path, GivenSizes({name: (2, 16, 16, 3)}))
    assert "RESHAPE" in str(caught.value)
