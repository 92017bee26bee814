"""Keras files that are damaged, lead elsewhere, or hold code: told before they are loaded."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from keras_networks import drawn, saved

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.keras.allowed_classes import LAYERS, REASONS
from rankslice.frontend.formats.keras.file import check_keras_file
from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.frontend.formats.keras.tensorflow import quiet


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, model = tmp_path_factory.mktemp("whole"), drawn("residual")
    return {suffix: saved(model, folder / f"m.{suffix}") for suffix in ("keras", "h5")}


@pytest.fixture
def h5(whole: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copy(whole["h5"], tmp_path / "m.h5")


def complaint(path: Path) -> str:
    with pytest.raises(RankSliceError) as caught:
        read_keras(path)
    return str(caught.value)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_files_that_were_cut_off_are_refused_wherever(suffix, whole, tmp_path):
    content = whole[suffix].read_bytes()
    path = tmp_path / f"cut.{suffix}"
    for share in (0.001, 0.1, 0.5, 0.9, 0.99):
        path.write_bytes(content[: int(len(content) * share)])
        assert str(path) in complaint(path)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_files_with_wrong_bytes_are_read_or_refused_with_a_message(suffix, whole, tmp_path):
    content = whole[suffix].read_bytes()
    for seed in range(15):
        random, damaged = Random(seed), bytearray(content)
        for _ in range(1 + seed):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path = tmp_path / f"{seed}.{suffix}"
        path.write_bytes(damaged)
        # Whatever else it raises is a bug; many bytes are weights, of which any will do.
        with suppress(RankSliceError):
            check_keras_file(path)


def test_weights_without_layers_are_told(tmp_path):
    path = tmp_path / "m.weights.h5"
    with quiet():
        drawn("residual").save_weights(path)
    assert "holds weights without the model's layers" in complaint(path)


def with_h5(change: Callable[..., None]) -> Callable[[Path], None]:
    import h5py

    def changed(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file, h5py)

    return changed


def test_links_out_of_an_hdf5_file_are_refused(h5):
    def change(file, h5py):
        file["model_weights"]["other"] = h5py.ExternalLink("/etc/passwd", "/")

    with_h5(change)(h5)
    assert "'/model_weights/other' is a link" in complaint(h5)


def test_values_in_other_files_are_refused(h5):
    def change(file, h5py):
        external = [("/etc/passwd", 0, 64)]
        file.create_dataset("model_weights/other", (16,), "f4", external=external)

    with_h5(change)(h5)
    assert "lie in another file" in complaint(h5)


def test_sizes_beyond_all_bounds_are_refused(h5):
    def change(file, h5py):
        file.create_dataset("model_weights/other", (1 << 40,), "f4", chunks=(1 << 20,))

    with_h5(change)(h5)
    assert "too much for a model" in complaint(h5)


def test_a_damaged_beginning_of_the_list_of_groups_is_told(h5):
    content = h5.read_bytes()
    assert b"TREE" in content
    h5.write_bytes(content.replace(b"TREE", b"tREE", 1))
    assert "is damaged" in complaint(h5)


def test_what_is_neither_a_group_nor_an_array_is_refused(h5):
    def change(file, h5py):
        file["model_weights"]["kind"] = np.dtype("f4")  # a type with a name

    with_h5(change)(h5)
    assert "'/model_weights/kind' is neither a group nor an array" in complaint(h5)


def test_groups_that_lead_in_a_circle_are_refused(h5):
    def change(file, h5py):
        file["model_weights"]["again"] = file["model_weights"]

    with_h5(change)(h5)
    assert "by another name, too" in complaint(h5)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_code_in_a_file_is_never_run(suffix, tmp_path):
    import keras

    trace = tmp_path / "it-ran"
    code = eval(f"lambda x: (__import__('pathlib').Path({str(trace)!r}).touch(), x)[1]")
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, keras.layers.Lambda(code, name="evil", output_shape=(3,))(inputs))
    path = saved(model, tmp_path / f"evil.{suffix}")
    trace.unlink(missing_ok=True)
    assert "layer 'evil': 'Lambda' holds Python code" in complaint(path)
    assert not trace.exists()


def test_custom_layers_are_told_by_name(tmp_path):
    import keras

    @keras.saving.register_keras_serializable("mine")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    inputs = keras.Input((3,), name="x")
    path = saved(keras.Model(inputs, Doubled(name="twice")(inputs)), tmp_path / "m.keras")
    assert "layer 'twice': the class 'mine>Doubled'" in complaint(path)


def test_custom_models_are_told_by_name(tmp_path):
    import keras

    @keras.saving.register_keras_serializable("mine")
    class Own(keras.Model):
        def call(self, x):
            return x

    model = Own()
    model(keras.ops.ones((1, 3)))
    assert "is of the class 'Own'" in complaint(saved(model, tmp_path / "m.keras"))


def test_a_configuration_that_keras_does_not_understand_is_told(whole, tmp_path):
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(whole["keras"]) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                config = json.loads(content)
                config["config"]["layers"][1]["config"]["filters"] = "many"
                content = json.dumps(config).encode()
            new.writestr(name, content)
    assert "cannot load it" in complaint(path)


def test_models_that_do_not_know_their_input_are_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.layers.Dense(2)])
    assert "give the model an Input" in complaint(saved(model, tmp_path / "m.keras"))


def test_every_layer_of_keras_is_known_to_be_harmless_or_not():
    import keras

    classes = {
        name
        for name in dir(keras.layers)
        if isinstance(getattr(keras.layers, name), type) and not name.startswith("_")
    }
    assert LAYERS - classes <= {f"SpatialDropout{n}D" for n in "123"} | CONVOLUTION_ALIASES
    assert not classes & LAYERS & REASONS.keys()


CONVOLUTION_ALIASES = {"SeparableConvolution1D", "SeparableConvolution2D"}
