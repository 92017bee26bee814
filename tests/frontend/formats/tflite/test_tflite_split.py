from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from litert import Runner
from tflite_models import model_file, written

from rankslice.framework.mapping import Assignment, Block
from rankslice.frontend.formats.tflite.forms import tflite_form
from rankslice.frontend.formats.tflite.making import with_made_layers
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.partition.partition import partition
from rankslice.frontend.rewriting.regions import Window
from rankslice.frontend.rewriting.split import split_layers

MODELS = Path(__file__).parents[4] / "models"
FILES = {
    **{name: MODELS / f"{name}.tflite" for name in ("digits", "digits-int8", "digit_detector")},
    **{
        name: model_file(name)
        for name in ("cnn_float32", "cnn_float16", "cnn_dynamic", "cnn_int8", "cnn_int16x8")
    },
}
WAYS = [
    ("rows", "recompute"),
    ("rows", "exchange"),
    ("columns", "recompute"),
    ("outputs", "exchange"),
    ("inputs", "exchange"),
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("by", "halo"), WAYS)
def test_parts_give_the_results_of_the_whole_model(name, by, halo, tmp_path):
    model = read_tflite(FILES[name])
    block = Block(
        "a mapping", tuple(x.name for x in model.graph.layers), by, halo, ((0, 1), (1, 1))
    )
    split = split_layers(model.graph, Assignment(((), ()), (block,)), tflite_form, True)
    made = with_made_layers(model, split.graph)
    cut = partition(made.graph, split.assignment.entry_of, group_of=split.group_of)
    whole = Runner(model.path, xnnpack=True)
    frame = whole.random_frame(np.random.default_rng(0))
    values = {t.name: array for t, array in zip(model.graph.inputs, frame, strict=True)}
    for number, segment in enumerate(cut.segments):
        part = Runner(written(made, segment, tmp_path / f"{number}.tflite"), xnnpack=True)
        results = part.run([values[tensor.name] for tensor in segment.inputs])
        values |= {t.name: array for t, array in zip(segment.outputs, results, strict=True)}
    for tensor, expected in zip(model.graph.outputs, whole.run(frame), strict=True):
        bound = 1e-5 * np.ptp(expected) if name not in ("cnn_int8", "cnn_int16x8") else 0
        np.testing.assert_allclose(values[tensor.name], expected, rtol=0, atol=bound)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_with_padding_by_the_size_are_those_of_the_whole(stride):
    for size in range(1, 25):
        for kernel in range(1, 8):
            count = -(-size // stride)
            pads = max((count - 1) * stride + kernel - size, 0)
            window = Window(kernel, stride, pads // 2, pads - pads // 2)
            for cut in range(1, count):
                for ends in ((0, cut), (cut, count)):
                    low, _ = window.needs(ends)
                    along = window.without_pads(ends, size) if pads and low < size else None
                    if along is None:
                        continue
                    start, stop = along.needed
                    made = -(-(stop - start) // stride)
                    inner = max((made - 1) * stride + kernel - (stop - start), 0) // 2
                    assert made == along.region[1] - along.region[0]
                    for row in range(*ends):
                        first = start + (row - along.region[0]) * stride - inner
                        assert first == row * stride - window.before
                        right = max(first, 0), min(first + kernel, size)
                        assert start <= right[0]
                        assert right[1] <= stop
