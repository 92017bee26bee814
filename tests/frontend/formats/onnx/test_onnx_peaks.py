"""Sizes that are largest for inputs of medium size."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_models import save

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph, Tensor
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.onnx.reader import read_onnx

PEAK = """<ir_version: 8, opset_import: ["" : 17]> g (float[h, 4] x) => (float[] y)
    <int64[1] zero = {0}, int64 middle = {MIDDLE}, int64 four = {4}, int64 sixty = {60},
     int64 one = {1}, int64[1] columns = {4}>
    { s = Shape(x)  h = Gather(s, zero)  d = Sub(h, middle)  q = Mul(d, d)  f = Mul(q, four)
      m = Sub(sixty, f)  n = Max(m, one)  to = Concat <axis = 0> (n, columns)
      mean = ReduceMean <keepdims = 1> (x)  t = Expand(mean, to)  y = ReduceSum <keepdims = 0> (t)
    }"""
"""t has most rows, 60, where x has as many as MIDDLE, and one row for most sizes."""


def peak(folder: Path, middle: int, bounds: dict[str, tuple[int, ...]]) -> tuple[Graph, Tensor]:
    path = save(folder, PEAK.replace("MIDDLE", str(middle)))
    graph = read_onnx(path, GivenSizes(at_most=bounds)).graph
    return graph, next(t for layer in graph.layers for t in layer.outputs if t.name == "t")


@pytest.mark.parametrize("middle", [1, 5, 11, 15, 16])
def test_a_small_model_is_tried_with_all_sizes_of_an_input(tmp_path: Path, middle: int) -> None:
    graph, tensor = peak(tmp_path, middle, {"h": (16,)})
    assert ((60, 4), ("?", ""), ()) == (tensor.shape, tensor.symbols, graph.warnings)


def test_a_bound_of_which_the_tries_are_not_sure_is_told(tmp_path: Path) -> None:
    graph, tensor = peak(tmp_path, 311, {"h": (1000,)})
    told = (
        "model.onnx: tensor 't' is not largest for the largest inputs; of those tried it is at most"
        " [44, 4], and a frame with more ends the job (--at-most t=44,4 sets the bound)"
    )
    assert ((44, 4), (told,)) == (tensor.shape, graph.warnings)


@pytest.mark.parametrize(("middle", "given"), [(311, 60), (311, 8), (5, 80), (402, 60)])
def test_a_bound_that_is_given_decides(tmp_path: Path, middle: int, given: int) -> None:
    graph, tensor = peak(tmp_path, middle, {"h": (1000,), "t": (given, 4)})
    assert ((given, 4), ("?", ""), ()) == (tensor.shape, tensor.symbols, graph.warnings)


def test_a_bound_below_a_size_that_all_tries_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"does not fit the sizes \[60, 3\]; it has \[\?, 4\]"):
        peak(tmp_path, 5, {"h": (16,), "t": (60, 3)})
