"""``.tflite`` models whose sizes stay open: bounds, and slices against the unsliced model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from litert_engines import needs_litert
from open_runs import Run, drawn_frame
from open_tflite_models import (
    detection_model,
    image_model,
    rows_model,
    suppression_model,
    text_model,
)
from tflite_models import edited, model_file, written

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Tensor
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import TfliteModel, read_tflite
from rankslice.frontend.formats.tflite.wire import Table, packed
from rankslice.frontend.partition.partition import partition

BATCH = 5


def read(path: Path, **at_most: tuple[int, ...]) -> TfliteModel:
    return read_tflite(path, GivenSizes(at_most=at_most))


def of_any_batch(name: str) -> TfliteModel:
    """Return a model of the repository whose batch is open, up to :data:`BATCH`."""
    path = model_file(name)
    (given,) = read_tflite(path).graph.inputs
    return read_tflite(path, GivenSizes(at_most={given.name: (BATCH, *(given.shape or ())[1:])}))


def made(model: TfliteModel, layer: str) -> Tensor:
    return next(item for item in model.graph.layers if item.name == layer).outputs[0]


def sizes(tensor: Tensor) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    return tensor.shape, tensor.symbols


def refused(path: Path, **at_most: tuple[int, ...]) -> str:
    with pytest.raises(RankSliceError) as caught:
        read(path, **at_most)
    return str(caught.value)


def test_sizes_that_follow_from_open_ones_are_open_up_to_their_own_bound(tmp_path: Path) -> None:
    model = read(image_model(tmp_path), image=(1, 41, 33, 3))
    assert ((1, 41, 33, 3), ("", "image.1", "image.2", "")) == sizes(model.graph.inputs[0])
    assert ((1, 21, 17, 2), ("", "?", "?", "")) == sizes(made(model, "LOGISTIC_2"))
    assert ((1, 2), ()) == sizes(made(model, "MEAN_3"))


def test_an_open_size_of_at_most_one_is_fixed(tmp_path: Path) -> None:
    model = read(text_model(tmp_path), tokens=(1, 30))
    assert ((1, 30), ("", "tokens.1")) == sizes(model.graph.inputs[0])
    assert ((1, 30, 30), ("", "?", "?")) == sizes(made(model, "SOFTMAX_3"))


def test_bounds_are_known_without_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    model = read(text_model(tmp_path), tokens=(4, 30))
    assert ((4, 30, 3), ("?", "?", "")) == sizes(model.graph.outputs[0])


@needs_litert
def test_bounds_that_no_rule_gives_are_asked_of_the_engine() -> None:
    model = of_any_batch("open_segments")
    assert ((BATCH + 3, 4), ("?", "")) == sizes(made(model, "RELU_5"))


def test_what_the_data_choose_is_at_most_what_there_is(tmp_path: Path) -> None:
    model = read(rows_model(tmp_path))
    assert ((12, 1), ("?", "")) == sizes(made(model, "WHERE_2"))
    assert ((12, 1, 3), ("?", "", "")) == sizes(made(model, "LOGISTIC_7"))
    assert ((1, 3), ()) == sizes(made(model, "SUM_8"))


def test_a_bound_for_a_tensor_inside_holds_for_what_follows(tmp_path: Path) -> None:
    model = read(rows_model(tmp_path), places=(5, 1))
    assert ((5, 1, 3), ("?", "", "")) == sizes(made(model, "LOGISTIC_7"))


def test_boxes_that_are_kept_have_fixed_sizes_and_a_count(tmp_path: Path) -> None:
    kept, scores, count = read(suppression_model(tmp_path)).graph.outputs
    assert [((6, 4), ()), ((6,), ()), ((), ())] == [sizes(kept), sizes(scores), sizes(count)]


def test_bounds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = rows_model(tmp_path)
    message = refused(path, nowhere=(5,), rows=(12, 4), sums=(9,), places=(5, 2))
    assert "--at-most 'nowhere': the model has no such tensor" in message
    assert "tensor 'sums': all its sizes are fixed: [12]" in message
    assert "tensor 'places': does not fit the sizes [5, 2]; it is declared as [?, 1]" in message


def test_a_bound_may_state_fixed_sizes(tmp_path: Path) -> None:
    model = read(rows_model(tmp_path), sums=(12,))
    assert read(rows_model(tmp_path)).graph == model.graph


def test_a_bound_is_refused_where_fixed_inputs_fix_a_tensor(tmp_path: Path) -> None:
    sizes = GivenSizes({"image": (1, 20, 20, 3)}, {"sums": (1, 1, 1, 2)})
    with pytest.raises(RankSliceError, match=r"'sums': all its sizes are fixed: \[1, 10, 10, 2\]"):
        read_tflite(image_model(tmp_path), sizes)


def test_open_sizes_beside_variables_are_refused() -> None:
    with pytest.raises(RankSliceError) as caught:
        of_any_batch("open_variable")
    message = str(caught.value)
    assert "has open sizes, but the model keeps the variable 'total' from frame to frame" in message
    assert "--shape serving_default_x:0=5,4" in message


def test_sub_models_keep_open_sizes_and_no_others(tmp_path: Path) -> None:
    model = read(text_model(tmp_path), tokens=(1, 30))
    cut = partition(model.graph, {layer.name: 0 for layer in model.graph.layers})
    again = read_tflite(written(model, cut.segments[0], tmp_path / "part.tflite"))
    shapes = {
        table.text("name"): table.numbers("shape_signature")
        for table in again.main.tables("tensors")
    }
    assert ((1, -1), (1, -1, -1), (1, -1, 3), ()) == tuple(
        shapes[name] for name in ("tokens", "attention", "scores", "weights")
    )


def assert_slices_give_the_same_bits(
    model: TfliteModel, folder: Path, *, ranks: int = 2, frames: int = 12, least: int = 0
) -> None:
    names = [layer.name for layer in model.graph.layers]
    cut = partition(model.graph, {name: n % ranks for n, name in enumerate(names)})
    whole = Run(model.path, model.graph.inputs, model.graph.outputs)
    parts = [
        Run(written(model, part, folder / f"{n}.tflite"), part.inputs, part.outputs)
        for n, part in enumerate(cut.segments)
    ]
    random = np.random.default_rng(0)
    for number in range(frames):
        values = drawn_frame(model.graph, random, least)
        if not number and not least:
            values = {name: np.zeros_like(array) for name, array in values.items()}
        expected = whole.run(values)
        for part in parts:
            values |= part.run(values)
        for name, one in expected.items():
            np.testing.assert_array_equal(one, values[name], strict=True)


@needs_litert
@pytest.mark.parametrize(
    ("make", "at_most", "least"),
    [
        (image_model, {"image": (1, 40, 40, 3)}, 1),
        (text_model, {"tokens": (3, 20)}, 0),
        (rows_model, {}, 0),
        (suppression_model, {}, 0),
        (detection_model, {}, 0),
    ],
)
def test_slices_give_the_bits_of_the_whole_at_all_sizes(
    make: Callable[[Path], Path], at_most: dict[str, tuple[int, ...]], least: int, tmp_path: Path
) -> None:
    assert_slices_give_the_same_bits(read(make(tmp_path), **at_most), tmp_path, least=least)


@needs_litert
@pytest.mark.parametrize(
    "name",
    [
        "open_attention",
        "open_dense",
        "open_dense_int8",
        "open_kinds",
        "open_memory",
        "open_segments",
        "open_upward",
        "open_words",
    ],
)
def test_so_do_slices_of_networks_for_any_batch(name: str, tmp_path: Path) -> None:
    assert_slices_give_the_same_bits(of_any_batch(name), tmp_path, ranks=3, frames=6, least=1)


def test_a_custom_operators_result_has_the_bound_that_is_given(tmp_path: Path) -> None:
    signatures = {"answer": (-1, 2), "image": (1, 24, 24, 1)}

    def opened(main: Table) -> Table:
        tensors = (
            table.changed({"shape_signature": packed("int", *signatures[name])})
            if (name := table.text("name")) in signatures
            else table
            for table in main.tables("tensors")
        )
        return main.changed({"tensors": tuple(tensors)})

    path = edited("ethos_u", tmp_path, opened)
    assert (None, ()) == sizes(read(path).graph.layers[0].outputs[0])
    assert ((7, 2), ("?", "")) == sizes(read(path, answer=(7, 2)).graph.layers[0].outputs[0])
