from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from litert import Runner
from split_models import block, check_split
from tflite_models import Made, constant, drawn, made, model_file, operator

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.rewriting.regions import Window

MODELS = Path(__file__).parents[4] / "models"
FILES = {
    **{name: MODELS / f"{name}.tflite" for name in ("digits", "digits-int8", "digit_detector")},
    **{
        name: model_file(name)
        for name in ("cnn_float32", "cnn_float16", "cnn_dynamic", "cnn_int8", "cnn_int16x8")
    },
}
PARTS = ((0, 1), (1, 2), (2, 2))
WAYS = [
    ("rows", "recompute"),
    ("rows", "exchange"),
    ("columns", "recompute"),
    ("outputs", "exchange"),
    ("inputs", "exchange"),
]


def frame_of(path, graph):
    frame = Runner(path).random_frame(np.random.default_rng(0))
    return {tensor.name: array for tensor, array in zip(graph.inputs, frame, strict=True)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("by", "halo"), WAYS)
def test_parts_give_the_results_of_the_whole_model(name, by, halo, tmp_path):
    graph = read_tflite(FILES[name]).graph
    blocks = [block([layer.name for layer in graph.layers], by, PARTS, halo)]
    check_split(FILES[name], blocks, tmp_path / "out", inputs=frame_of(FILES[name], graph))


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


IMAGE = (1, 8, 12, 4)
SAME, VALID = 0, 1


def layer(name, result, constants=(), options="", inputs=(("x", IMAGE),), order="", **settings):
    """Return one operator: the shapes of what it reads and makes, and its constants by name."""
    held = dict(constants)
    names = order or " ".join((*(n for n, _ in inputs), *held))
    return operator(name, names, "y", options, **settings), dict(inputs), held, result


def numbers(*values):
    return {"told": constant(values, "int32")}


MATRIX = (("x", (1, 8, 12)),)
WINDOW = {"stride_w": 1, "stride_h": 2, "padding": SAME}
ALL = "rows columns outputs inputs"
LAYERS = {
    "RELU": (layer("RELU", IMAGE), ALL),
    "SOFTMAX": (layer("SOFTMAX", IMAGE, (), "SoftmaxOptions", beta=1), "rows columns"),
    "CONV_2D": (
        layer(
            "CONV_2D",
            (1, 4, 12, 8),
            {"w": drawn(8, 3, 3, 4), "b": drawn(8)},
            "Conv2DOptions",
            **WINDOW,
        ),
        ALL,
    ),
    "DEPTHWISE_CONV_2D": (
        layer(
            "DEPTHWISE_CONV_2D",
            (1, 4, 12, 8),
            {"w": drawn(1, 3, 3, 8), "b": drawn(8)},
            "DepthwiseConv2DOptions",
            depth_multiplier=2,
            **WINDOW,
        ),
        ALL,
    ),
    "MAX_POOL_2D": (
        layer(
            "MAX_POOL_2D",
            (1, 4, 12, 4),
            (),
            "Pool2DOptions",
            filter_height=3,
            filter_width=3,
            **WINDOW,
        ),
        ALL,
    ),
    "MEAN of channels": (
        layer("MEAN", (1, 8, 12, 1), numbers(-1), "ReducerOptions", keep_dims=1),
        "rows columns",
    ),
    "MEAN of an image": (
        layer("MEAN", (1, 1, 1, 4), numbers(1, 2), "ReducerOptions", keep_dims=1),
        "outputs inputs",
    ),
    "TRANSPOSE": (layer("TRANSPOSE", (1, 12, 4, 8), numbers(0, 2, 3, 1)), ALL),
    "PAD": (
        layer("PAD", (1, 11, 12, 4), {"told": constant([[0, 0], [1, 2], [0, 0], [0, 0]], "int32")}),
        ALL,
    ),
    "SLICE": (
        layer(
            "SLICE",
            (1, 5, 12, 4),
            {"at": constant([0, 2, 0, 0], "int32"), "n": constant([1, 5, 12, 4], "int32")},
        ),
        ALL,
    ),
    "STRIDED_SLICE": (
        layer(
            "STRIDED_SLICE",
            (1, 8, 6, 4),
            {
                "first": constant([0, 0, 1, 0], "int32"),
                "last": constant([1, 8, 12, 4], "int32"),
                "steps": constant([1, 1, 2, 1], "int32"),
            },
            "StridedSliceOptions",
        ),
        ALL,
    ),
    "RESIZE_BILINEAR": (
        layer(
            "RESIZE_BILINEAR",
            (1, 16, 24, 4),
            numbers(16, 24),
            "ResizeBilinearOptions",
            half_pixel_centers=1,
        ),
        ALL,
    ),
    "RESIZE_NEAREST_NEIGHBOR": (
        layer(
            "RESIZE_NEAREST_NEIGHBOR",
            (1, 16, 24, 4),
            numbers(16, 24),
            "ResizeNearestNeighborOptions",
        ),
        ALL,
    ),
    "RESIZE of a third": (
        layer("RESIZE_BILINEAR", (1, 24, 24, 4), numbers(24, 24), "ResizeBilinearOptions"),
        "columns outputs inputs",
    ),
    "CONCATENATION": (
        layer(
            "CONCATENATION",
            (1, 8, 12, 8),
            (),
            "ConcatenationOptions",
            (("x", IMAGE), ("z", IMAGE)),
            axis=3,
        ),
        ALL,
    ),
    "RESHAPE": (
        layer("RESHAPE", (1, 8, 48), numbers(1, 8, 48), "ReshapeOptions"),
        "rows outputs inputs",
    ),
    "FULLY_CONNECTED": (
        layer(
            "FULLY_CONNECTED",
            (1, 8, 16),
            {"w": drawn(16, 12), "b": drawn(16)},
            "FullyConnectedOptions",
            MATRIX,
            keep_num_dims=1,
        ),
        "rows outputs inputs",
    ),
    "FULLY_CONNECTED of an image": (
        layer("FULLY_CONNECTED", (8, 16), {"w": drawn(16, 48)}, "FullyConnectedOptions"),
        "rows outputs",
    ),
    "BATCH_MATMUL": (
        layer(
            "BATCH_MATMUL",
            (1, 8, 8),
            (),
            "BatchMatMulOptions",
            (("x", (1, 8, 12)), ("z", (1, 8, 12))),
            adj_y=1,
        ),
        "rows outputs inputs",
    ),
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("by", ["rows", "columns", "outputs", "inputs"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_split_in_all_ways_that_its_operator_allows(name, by, count, tmp_path):
    (kind, inputs, constants, result), ways = LAYERS[name]
    tensors = {n: Made(shape) for n, shape in inputs.items()} | constants | {"y": Made(result)}
    path = made(tmp_path / "model.tflite", tensors, [kind], " ".join(inputs), "y")
    graph = read_tflite(path).graph
    parts = [(entry, 1) for entry in range(count)]
    blocks = [block([one.name for one in graph.layers], by, parts)]
    if by in ways:
        check_split(path, blocks, tmp_path / "out", inputs=frame_of(path, graph))
    else:
        with pytest.raises(RankSliceError, match=f"cannot be split by {by}"):
            check_split(path, blocks, tmp_path / "out")
