"""Keras's own networks of real size, sliced from the files that Keras stores."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from keras_networks import Sliced, difference

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.keras_reader import KerasModel, read_keras
from rankslice.measurement.keras_zoo import SUFFIXES, keras_frames, keras_names, keras_source

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FRAMES = 6


def contiguous(model: KerasModel, ranks: int) -> dict[str, int]:
    layers = model.graph.layers
    return {layer.name: n * ranks // len(layers) for n, layer in enumerate(layers)}


def stripes(model: KerasModel, ranks: int, seed: int) -> dict[str, int]:
    """Return an interleaved mapping: runs of a few layers, each on any rank."""
    random = Random(seed)
    assigned, rank = {}, 0
    for layer in model.graph.layers:
        if random.random() < 0.1:
            rank = random.randrange(ranks)
        assigned[layer.name] = rank
    return assigned


def with_normalisations(model: KerasModel, ranks: dict[str, int]) -> dict[str, int]:
    """Return the ranks, each normalisation on that of the layer whose result it takes."""
    maker = {tensor.name: layer for layer in model.graph.layers for tensor in layer.outputs}
    for layer in model.graph.layers:
        if layer.op == "BatchNormalization" and layer.inputs[0].name in maker:
            ranks[layer.name] = ranks[maker[layer.inputs[0].name].name]
    return ranks


def largest_difference(model: KerasModel, ranks: dict[str, int], name: str, folder: Path) -> float:
    sliced = Sliced(model, ranks, folder)
    frames = [[frame[None]] for frame in keras_frames(name, FRAMES)]
    return max(difference(sliced.whole(frame), sliced.run(frame)) for frame in frames)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", keras_names())
def test_slices_give_the_numbers_of_the_whole(name, suffix, tmp_path):
    model = read_keras(keras_source(name, suffix))
    number = keras_names().index(name) + SUFFIXES.index(suffix)
    for ranks in (contiguous(model, 2 + number % 4), stripes(model, 2 + (number + 1) % 4, number)):
        exact = with_normalisations(model, ranks)
        assert largest_difference(model, exact, name, tmp_path) <= 1e-5


@pytest.mark.parametrize("name", keras_names())
def test_cuts_before_normalisations_change_little(name, tmp_path):
    model = read_keras(keras_source(name))
    # They change how weights are rounded, and networks with drawn weights amplify that: 1.4e-4 in
    # ResNet-50 with several such cuts, 2e-5 in MobileNetV2 with one.
    assert largest_difference(model, stripes(model, 3, 5), name, tmp_path) <= 1e-3


def test_the_cut_of_the_tutorial_gives_the_tensors_of_the_tutorial(tmp_path):
    model = read_keras(keras_source("resnet50", "h5"))
    ranks = {layer.name: int(n >= 89) for n, layer in enumerate(model.graph.layers, 1)}
    sliced = Sliced(model, ranks, tmp_path)
    assert (176, 2) == (len(model.graph.layers), len(sliced.segments))
    crossing = {tensor.name for tensor in sliced.segments[0].outputs}
    assert crossing == {"conv4_block1_3_conv", "conv4_block1_0_conv"}


def test_networks_that_nobody_knows_are_refused():
    with pytest.raises(RankSliceError, match="no network 'resnet'"):
        keras_source("resnet")
