"""Keras's own networks of real size, sliced from the files that Keras stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_networks import MAPPINGS, Sliced, contiguous, difference

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.keras.merging import (
    merge_normalisations,
    split_warnings,
)
from rankslice.frontend.formats.keras.reader import KerasModel, read_keras
from rankslice.frontend.formats.keras.tensorflow import load_keras, quiet
from rankslice.networks.keras_zoo import SUFFIXES, keras_frames, keras_names, keras_source

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FRAMES = 4


def differences(sliced: Sliced, name: str) -> list[float]:
    frames = [[frame[None]] for frame in keras_frames(name, FRAMES)]
    return [difference(sliced.whole(frame), sliced.run(frame)) for frame in frames]


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", keras_names())
def test_slices_give_the_numbers_of_the_whole(name, suffix, mapping, tmp_path):
    model = read_keras(keras_source(name, suffix))
    number = keras_names().index(name) + SUFFIXES.index(suffix) + 2 * (mapping == "contiguous")
    ranks = 2 + number % 4
    sliced = Sliced(model, MAPPINGS[mapping](model, ranks), tmp_path)
    assert ranks <= len(sliced.segments)
    assert max(differences(sliced, name)) <= 1e-5


def cuts_before_normalisations(model: KerasModel) -> dict[str, int]:
    """Return a mapping whose cuts, three of them, part normalisations from their layers."""
    names = [layer.name for layer in model.graph.layers]
    ranks = contiguous(model, 1)
    moved = list(merge_normalisations(model.graph, dict.fromkeys(names, 0)).graph.bonds)
    for rank, share in enumerate((0.25, 0.5, 0.75), 1):
        _, normalisation = moved[int(share * len(moved))].layers
        ranks |= dict.fromkeys(names[names.index(normalisation) :], rank)
    return ranks


@pytest.mark.parametrize("name", keras_names())
def test_cuts_before_normalisations_go_behind_them(name, tmp_path):
    model = read_keras(keras_source(name))
    sliced = Sliced(model, cuts_before_normalisations(model), tmp_path)
    assert [] == list(split_warnings(sliced.partition))
    assert max(differences(sliced, name)) <= 1e-5


def in_float64(path: Path) -> Any:
    """Return the model of a file, computing in float64."""
    import keras

    def wide(layer: Any) -> Any:
        return type(layer).from_config({**layer.get_config(), "dtype": "float64"})

    with quiet():
        model = load_keras(path)
        copy = keras.models.clone_model(model, clone_function=wide)
        copy.set_weights(model.get_weights())
    return copy


@pytest.mark.parametrize("name", keras_names())
def test_parted_normalisations_are_as_precise_as_merged_ones(name, tmp_path):
    """What they change is rounding, which networks with drawn weights amplify."""
    model = read_keras(keras_source(name))
    sliced = Sliced(model, cuts_before_normalisations(model), tmp_path, literally=True)
    assert [] != list(split_warnings(sliced.partition))
    truth = in_float64(model.path)
    parted, merged, apart = [], [], []
    for frame in keras_frames(name, FRAMES):
        expected = [np.asarray(truth(frame[None], training=False))]
        whole, run = sliced.whole([frame[None]]), sliced.run([frame[None]])
        parted.append(difference(expected, run))
        merged.append(difference(expected, whole))
        apart.append(difference(whole, run))
    print(f"{name}: parted {max(parted):.2g}, merged {max(merged):.2g}, apart {max(apart):.2g}")
    assert max(apart) <= 1e-3
    assert max(parted) <= 3 * max(merged)


def test_the_cut_of_the_tutorial_goes_behind_two_normalisations(tmp_path):
    model = read_keras(keras_source("resnet50", "h5"))
    ranks = {layer.name: int(n >= 89) for n, layer in enumerate(model.graph.layers, 1)}
    for literally, kind in ((True, "conv"), (False, "bn")):
        sliced = Sliced(model, ranks, tmp_path, literally=literally)
        assert (176, 2) == (len(model.graph.layers), len(sliced.segments))
        crossing = {tensor.name for tensor in sliced.segments[0].outputs}
        assert crossing == {f"conv4_block1_3_{kind}", f"conv4_block1_0_{kind}"}


def test_networks_that_nobody_knows_are_refused():
    with pytest.raises(RankSliceError, match="no network 'resnet'"):
        keras_source("resnet")
