"""Keras files are judged before TensorFlow sees them: these tests need neither it nor h5py."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.keras.allowed_classes import APPLICATION_LAYERS, LAYERS, REASONS
from rankslice.frontend.formats.keras.config import config_mistakes
from rankslice.frontend.formats.keras.file import check_keras_file
from rankslice.frontend.formats.keras.tensorflow import tensorflow

DIGITS = Path(__file__).parents[4] / "models"


def layer(class_name: str, **values: Any) -> dict[str, Any]:
    config = {"name": "inner", **values.pop("config", {})}
    return {"module": "keras.layers", "class_name": class_name, "config": config, **values}


def model(*layers: Any) -> dict[str, Any]:
    config = {"name": "m", "layers": list(layers)}
    return {"module": "keras", "class_name": "Sequential", "config": config}


def complaints(config: object) -> list[str]:
    return [str(mistake) for mistake in config_mistakes("m.keras", config)]


def archive(path: Path, config: object, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        for name, content in {"model.weights.h5": b"", **members}.items():
            file.writestr(name, content)
    return path


def test_layers_of_keras_are_fine_however_deep_they_are() -> None:
    inner = model(layer("Dense", config={"activation": "relu"}))
    wrapped = layer("TimeDistributed", config={"layer": layer("Dense")})
    assert [] == complaints(model(layer("InputLayer"), inner, wrapped))


@pytest.mark.parametrize("name", sorted(REASONS))
def test_what_runs_code_or_reads_files_is_refused_with_the_reason(name: str) -> None:
    (text,) = complaints(model(layer(name)))
    assert "m.keras: layer 'inner'" in text
    assert REASONS[name] in text


@pytest.mark.parametrize(
    "hidden",
    [
        layer(
            "Dense", config={"activation": {"class_name": "__lambda__", "config": {"value": "x"}}}
        ),
        layer("Dense", config={"kernel_initializer": layer("Evil", module="os")}),
        layer("Bidirectional", config={"layer": layer("Lambda")}),
        layer("RNN", config={"cell": [layer("MyCell", registered_name="Custom>MyCell")]}),
        layer("Activation", config={"activation": {"class_name": "function", "config": "system"}}),
        {**layer("Dense"), "build_config": {"x": [[{"class_name": "TFSMLayer"}]]}},
    ],
)
def test_nothing_hides_in_depth(hidden: dict[str, Any]) -> None:
    assert complaints(model(hidden))


@pytest.mark.parametrize(
    "forged",
    [
        layer("Dense", module="os"),
        layer("Dense", module="keras.layers;os"),
        layer("Dense", registered_name="Custom>Dense"),
        layer("get_file", module="keras.utils"),
        layer("load_model", module="keras.models"),
        layer("Map", module="keras.src.ops.core"),
        layer("np.load", module="keras.src.ops.numpy"),
        layer("__typespec__"),
        {"class_name": ["Dense"], "config": {}},
        {"class_name": "Dense", "module": 7, "config": {}},
        {"registered_name": "Custom>Thing"},
    ],
)
def test_names_that_lead_elsewhere_are_refused(forged: dict[str, Any]) -> None:
    assert 1 == len(complaints(model(forged)))


def test_operations_between_layers_are_fine() -> None:
    plus = {"module": "keras.src.ops.numpy", "class_name": "Add", "config": {"name": "add"}}
    assert [] == complaints(model({**plus, "registered_name": "Add"}))


@pytest.mark.parametrize("name", sorted(APPLICATION_LAYERS))
def test_layers_of_the_applications_of_keras_are_fine_by_class_and_module(name: str) -> None:
    keras = layer(name, module=APPLICATION_LAYERS[name], registered_name=name)
    older = {"class_name": name, "config": {"name": "inner"}}
    assert [] == complaints(model(keras, older))


@pytest.mark.parametrize(
    ("module", "registered"),
    [("mine", "LayerScale"), (None, "LayerScale"), ("keras.src.applications.vgg16", None)],
)
def test_layers_of_the_same_name_as_those_of_applications_are_refused(
    module: str | None, registered: str | None
) -> None:
    (text,) = complaints(model(layer("LayerScale", module=module, registered_name=registered)))
    assert "LayerScale' is not one of Keras's own" in text


def test_a_custom_layer_is_told_with_its_layer_and_the_nearest_name() -> None:
    (text,) = complaints(model(layer("Conv2d", registered_name=None)))
    assert "layer 'inner'" in text
    assert "did you mean 'Conv2D'?" in text


def test_all_mistakes_are_told_at_once() -> None:
    assert 2 == len(complaints(model(layer("Lambda"), layer("Mine"))))


def test_layers_that_remember_frames_are_refused() -> None:
    (text,) = complaints(model(layer("LSTM", config={"stateful": True})))
    assert "keeps its state from frame to frame" in text
    assert [] == complaints(model(layer("LSTM", config={"stateful": False})))


@pytest.mark.parametrize("config", [None, [], {}, "x", {"class_name": 3}, {"class_name": "Mine"}])
def test_what_is_no_model_of_keras_is_refused(config: object) -> None:
    assert 1 == len(complaints(config))


def test_training_settings_are_not_looked_at() -> None:
    assert [] == complaints({**model(), "compile_config": {"loss": layer("Lambda")}})


def test_a_file_with_code_is_refused_where_tensorflow_is_not_installed(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", model(layer("Lambda")))
    with pytest.raises(RankSliceError, match="holds Python code, which loading it would run"):
        check_keras_file(path)


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"assets/x.txt": b"1"}, "holds 'assets/x.txt'"),
        ({"../../evil": b"1"}, "holds '../../evil'"),
        ({"model.weights.h5": bytes(100 << 20)}, "too much for a model"),
    ],
)
def test_archives_with_more_than_a_model_are_refused(
    members: dict[str, bytes], found: str, tmp_path: Path
) -> None:
    with pytest.raises(RankSliceError, match=found):
        check_keras_file(archive(tmp_path / "m.keras", model(), **members))


def test_an_archive_without_weights_or_configuration_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", "")
    with pytest.raises(RankSliceError) as caught:
        check_keras_file(path)
    assert 3 == len(caught.value.mistakes)


@pytest.mark.parametrize(
    "text", ["{", "", "nul", "[" * 100_000, "\ud800".encode("utf-8", "replace").decode()]
)
def test_a_configuration_that_is_no_json_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match="is not JSON"):
        check_keras_file(archive(tmp_path / "m.keras", text))


@pytest.mark.parametrize("suffix", ["keras", "h5"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"[:5], b"x" * 1000])
def test_files_of_another_kind_are_refused(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{suffix}"
    path.write_bytes(content)
    with pytest.raises(RankSliceError):
        check_keras_file(path)


def test_archives_that_were_cut_off_are_refused_wherever(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", model(layer("Dense")))
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RankSliceError):
            check_keras_file(path)


def test_an_hdf5_file_by_the_wrong_name_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    path.write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(RankSliceError, match=r"name it \.h5"):
        check_keras_file(path)


def test_no_layer_is_both_allowed_and_refused() -> None:
    assert not LAYERS & REASONS.keys()


def test_an_archive_that_leads_before_its_beginning_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", model(layer("Dense")))
    content = bytearray(path.read_bytes())
    place = len(content) - 22 + 16  # where the last record has the offset of the directory
    (offset,) = struct.unpack_from("<I", content, place)
    struct.pack_into("<I", content, place, offset + 16)
    path.write_bytes(content)
    with pytest.raises(RankSliceError, match=r"damaged \.keras archive"):
        check_keras_file(path)


@pytest.mark.parametrize("name", ["digits.keras", "digits.h5"])
def test_what_to_install_is_told_where_h5py_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(RankSliceError) as caught:
        check_keras_file(DIGITS / name)
    assert "needs TensorFlow to be read; pip install 'rankslice[keras]'" in str(caught.value)


@pytest.mark.parametrize("module", ["keras", "tensorflow"])
def test_what_to_install_is_told_where_tensorflow_is_missing(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RankSliceError) as caught:
        tensorflow("m.keras")
    assert "m.keras: needs TensorFlow to be read; pip install" in str(caught.value)
