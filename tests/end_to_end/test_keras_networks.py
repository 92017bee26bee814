"""Keras's networks as ``.tflite`` files of every kind, sliced, against the unsliced ones."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np
import pytest
from litert import Array, Runner
from split_models import block, check_split
from tflite_models import written

from rankslice.framework.graph import PartOf
from rankslice.frontend.formats.tflite.macs import tflite_macs
from rankslice.frontend.formats.tflite.reader import TfliteModel, read_tflite
from rankslice.frontend.partition.partition import partition
from rankslice.networks.keras_zoo import KINDS, keras_file, keras_model, keras_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def network(name: str, kind: str) -> Path:
    if not keras_file(name, kind).exists() and find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed, and the file was not made before")
    return keras_model(name, kind)


def stripes(model: TfliteModel, ranks: int, seed: int) -> dict[str, int]:
    """Return an interleaved mapping: runs of a few layers, each on any rank."""
    random = Random(seed)
    assigned, rank = {}, 0
    for layer in model.graph.layers:
        if random.random() < 0.1:
            rank = random.randrange(ranks)
        assigned[layer.name] = rank
    return assigned


def contiguous(model: TfliteModel, ranks: int, _: int) -> dict[str, int]:
    layers = model.graph.layers
    return {layer.name: number * ranks // len(layers) for number, layer in enumerate(layers)}


def run_slices(
    model: TfliteModel, ranks: dict[str, int], frame: Array, folder: Path, *, xnnpack: bool
) -> dict[str, Array]:
    """Return all tensors that cross cuts, and the outputs, by name."""
    segments = partition(model.graph, ranks).segments
    assert max(ranks.values()) < len(segments)
    values = {model.graph.inputs[0].name: frame}
    for number, segment in enumerate(segments):
        path = written(model, segment, folder / f"{number}.tflite")
        made = Runner(path, xnnpack=xnnpack).run([values[t.name] for t in segment.inputs])
        values |= {tensor.name: array for tensor, array in zip(segment.outputs, made, strict=True)}
    return values


@pytest.mark.parametrize(
    ("kind", "deal"),
    [*((kind, stripes) for kind in KINDS), ("float32", contiguous), ("int8", contiguous)],
)
@pytest.mark.parametrize("name", keras_names())
def test_a_network_in_slices_gives_the_bits_of_the_whole(name, kind, deal, tmp_path):
    model = read_tflite(network(name, kind))
    seed = keras_names().index(name) * len(KINDS) + KINDS.index(kind)
    whole = Runner(model.path, xnnpack=True)
    (frame,) = whole.random_frame(np.random.default_rng(seed))
    ranks = deal(model, 2 + seed % 4, seed)
    values = run_slices(model, ranks, frame, tmp_path, xnnpack=True)
    (expected,) = whole.run([frame])
    np.testing.assert_array_equal(expected, values[model.graph.outputs[0].name], strict=True)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", keras_names())
def test_the_tensors_that_cross_cuts_have_the_bits_of_the_whole_too(name, kind, tmp_path):
    model = read_tflite(network(name, kind))
    seed = 100 + keras_names().index(name)
    whole = Runner(model.path, keep_all=True)
    (frame,) = whole.random_frame(np.random.default_rng(seed))
    whole.run([frame])
    ranks = stripes(model, 2 + seed % 4, seed)
    values = run_slices(model, ranks, frame, tmp_path, xnnpack=False)
    different = []
    for tensor, found in values.items():
        expected = whole.tensor(model.tensor_names.index(tensor))
        np.testing.assert_array_equal(expected, found, strict=True)
        different.append(len(np.unique(expected)))
    assert np.median(different) > 20


@pytest.mark.parametrize(
    ("by", "halo"), [("rows", "recompute"), ("columns", "exchange"), ("outputs", "recompute")]
)
@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", keras_names())
def test_a_network_split_in_three_parts_gives_the_bits_of_the_whole(name, kind, by, halo, tmp_path):
    path = network(name, kind)
    graph = read_tflite(path).graph
    (frame,) = Runner(path).random_frame(np.random.default_rng(0))
    parts = block([layer.name for layer in graph.layers], by, ((0, 1), (1, 2), (2, 1)), halo)
    inputs = {graph.inputs[0].name: frame}
    cut, _ = check_split(path, [parts], tmp_path / "out", inputs=inputs, tolerance=0)
    macs = {layer.name: tflite_macs(layer) or 0 for layer in graph.layers}
    made = [layer for one in cut.segments for layer in one.layers]
    split = {layer.origin for layer in made if isinstance(layer.making, PartOf)}
    assert sum(macs[name] for name in split) > sum(macs.values()) / 2
