"""Keras models from the command line to the end: built, run over ranks, compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import printed, rankslice, succeed
from jobs import shared_core_key
from keras_networks import drawn, saved
from shown_commands import steps

from rankslice.backend.runtime.sinks.results import read_results
from rankslice.frontend.formats.keras.tensorflow import quiet
from rankslice.frontend.formats.keras.writer import kind_of
from rankslice.models import convert_digits, train_digits
from rankslice.networks.digits import heldout_digits, write_digit_images
from rankslice.networks.keras_zoo import keras_source

MODELS = Path(convert_digits.__file__).parent
LAYERS = (
    *("conv1", "relu1", "conv2", "relu2", "pool1", "conv3", "relu3", "conv4", "shortcut"),
    *("add", "relu4", "pool2", "flatten", "dense", "softmax"),
)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """The held-out images as frames."""
    images, _ = heldout_digits()
    frames = images.astype(np.float32)[..., None] / np.float32(256)
    np.savez(tmp_path / "digits.npz", image=frames)
    return tmp_path / "digits.npz"


def interleaved(folder: Path, ranks: int) -> Path:
    mapping = {shared_core_key(rank): list(LAYERS[rank::ranks]) for rank in range(ranks)}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    return folder / "mapping.json"


def accuracy(out: Path) -> float:
    _, labels = heldout_digits()
    scores = read_results(out / "results.bin").values(0).reshape(len(labels), -1)
    return float(np.mean(scores.argmax(axis=1) == labels))


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_digits_are_read_as_well_by_interleaved_slices(suffix, digits, tmp_path):
    out = tmp_path / "out"
    built = rankslice(
        *("build", MODELS / f"digits.{suffix}", "--mapping", interleaved(tmp_path, 3)),
        *("--share-cores", "--out", out),
    )
    assert (0, "") == (built.code, built.err)
    succeed("run", out, "--input", digits, "--verify", "--json", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["verify"]["bit_equal"]
    assert f"{accuracy(out):.4f}" == "0.9833"


@pytest.mark.parametrize("kind", ["float16", "dynamic", "int8"])
def test_quantised_slices_read_digits_as_well(kind, digits, tmp_path):
    out, images = tmp_path / "out", train_digits.load()[0].images[:100]
    frames = train_digits.network_input(images).reshape(-1, 8, 8, 1)
    np.savez(tmp_path / "seen.npz", image=frames)
    options = ("--representative", tmp_path / "seen.npz") if kind == "int8" else ()
    built = rankslice(
        *("build", MODELS / "digits.keras", "--cuts", "6,12", "--share-cores", "--out", out),
        *("--quantize", kind, *options),
    )
    assert (0, "") == (built.code, built.err)
    assert kind == kind_of(out / "model.tflite")
    size = sum(path.stat().st_size for path in (out / "submodels").iterdir())
    assert size < 0.7 * (MODELS / "digits.tflite").stat().st_size
    succeed("run", out, "--input", digits, "--verify", "--tolerance", "0.1")
    assert accuracy(out) == pytest.approx(0.9833, abs=0.006)


def test_tflite_files_of_the_digits_read_them_as_well(digits, tmp_path):
    for name in ("digits.tflite", "digits-int8.tflite"):
        out = tmp_path / name
        rankslice("build", MODELS / name, "--cuts", "3", "--share-cores", "--out", out)
        succeed("run", out, "--input", digits, "--verify", "exact")
        assert accuracy(out) == pytest.approx(0.9833, abs=0.003)


def test_the_shipped_files_have_the_weights_of_digits_onnx(tmp_path):
    convert_digits.main(tmp_path)
    for name in ("digits.tflite", "digits-int8.tflite"):
        assert (tmp_path / name).stat().st_size == (MODELS / name).stat().st_size
        assert (MODELS / name).stat().st_size < 300_000
    detector = MODELS / "digit_detector.tflite"
    assert (tmp_path / detector.name).read_bytes()[:100] == detector.read_bytes()[:100]
    assert (tmp_path / detector.name).stat().st_size == detector.stat().st_size


def test_wrong_options_are_told(tmp_path):
    keras, onnx = MODELS / "digits.keras", MODELS / "digits.onnx"
    frames = tmp_path / "x.npz"
    np.savez(frames, other=np.zeros((1, 8, 8, 1), np.float32))
    wrong = {
        (keras, "--quantize", "int8"): "give --representative",
        (keras, "--representative", frames): "give --quantize int8",
        (keras, "--quantize", "int8", "--representative", frames): "has no array 'image'",
        (keras, "--quantize", "int8", "--representative", tmp_path / "no"): "no such file",
        (onnx, "--quantize", "float16"): "is not converted",
    }
    for (model, *options), found in wrong.items():
        out = tmp_path / "out"
        ended = rankslice("build", model, "--cuts", "3", *options, "--share-cores", "--out", out)
        assert (1, True) == (ended.code, found in ended.err), ended.err
        assert not out.exists()


def test_building_twice_gives_the_same_bytes_and_force_replaces(tmp_path):
    path = saved(drawn("shared"), tmp_path / "m.keras")
    contents = []
    for options in ((), ("--force",)):
        out = tmp_path / "out"
        succeed("build", path, "--cuts", "3", "--share-cores", "--out", out, *options)
        files = sorted(file for file in out.rglob("*") if file.is_file() and file.name != "model")
        contents.append({file: file.read_bytes() for file in files})
    assert contents[0] == contents[1]
    assert (tmp_path / "out" / "model.tflite") in contents[0]


def test_normalisations_go_with_their_layers_and_that_is_told(tmp_path):
    path = saved(drawn("normalised"), tmp_path / "m.keras")
    out = tmp_path / "out"
    ended = succeed("build", path, "--cuts", "2", "--share-cores", "--out", out)
    assert "run on their ranks, not on those of the mapping: 'norm1'\n" in ended.err
    ended = succeed("run", out, "--frames", "5", "--verify")
    assert "5 frames compared, bit-equal" in ended.out
    ended = succeed("inspect", out)
    assert "ranks" in ended.out


def test_a_rank_of_a_normalisation_alone_keeps_it_and_that_is_told(tmp_path):
    path = saved(drawn("normalised"), tmp_path / "m.keras")
    out = tmp_path / "out"
    ended = succeed("build", path, "--cuts", "2,3", "--share-cores", "--out", out)
    assert "cuts separate 'norm1' from the layers before" in ended.err
    assert "not on those" not in ended.err


def test_normalisations_stay_where_the_mapping_says_if_it_is_to_be_taken_literally(tmp_path):
    path = saved(drawn("normalised"), tmp_path / "m.keras")
    sent = {}
    for options in ((), ("--literally",)):
        out = tmp_path / "out"
        ended = succeed(
            *("build", path, "--cuts", "2", "--share-cores", "--out", out, "--force", *options)
        )
        table = json.loads((out / "sender.json").read_text())
        sent[options] = {tensor for tensors in table.values() for tensor in tensors}
    assert {(): {"norm1"}, ("--literally",): {"conv1"}} == sent
    assert "cuts separate 'norm1' from the layers before" in ended.err
    assert "not on those" not in ended.err
    succeed("run", out, "--frames", "5", "--verify")


def test_inspect_shows_calls_weights_and_products(tmp_path):
    path = saved(drawn("residual"), tmp_path / "m.keras")
    succeed("inspect", path, "--json", tmp_path / "m.json")
    record = json.loads((tmp_path / "m.json").read_text())
    totals = record["totals"]
    weights = sum(int(np.prod(variable.shape)) for variable in drawn("residual").weights)
    assert ("keras", weights, 8) == (
        record["model"]["format"],
        totals["parameters"],
        totals["moments"],
    )
    window = 8 * 8 * 4 * (9 * 3 + 9 * 4 + 4)
    assert window + 12 * 5 == totals["macs"]


def test_the_keras_file_of_the_page_about_papers_is_sliced_as_it_says(tmp_path):
    (tmp_path / "resnet50.h5").symlink_to(keras_source("resnet50", "h5"))
    page = steps(Path(__file__).parents[5] / "docs" / "seeds.md")
    (step,) = [step for step in page if "resnet50.h5" in step.lines[0]]
    assert [] == step.lacks("".join(printed(line, tmp_path) for line in step.lines))


def test_the_saved_model_of_the_page_about_papers_is_sliced_as_it_says(tmp_path):
    from keras import saving

    with quiet():
        saving.load_model(MODELS / "digits.keras").export(
            tmp_path / "digits_saved_model", verbose=False
        )
    write_digit_images(tmp_path / "digits", 100)
    page = steps(Path(__file__).parents[5] / "docs" / "seeds.md")
    (step,) = [step for step in page if "digits_saved_model" in step.lines[0]]
    assert [] == step.lacks("".join(printed(line, tmp_path) for line in step.lines))


def test_layers_of_keras_models_are_not_split_before_they_are_converted(tmp_path):
    ended = rankslice("explore", MODELS / "digits.keras", "--splits", "--out", tmp_path / "out")
    complaint = "layers of .keras models cannot be split; convert the model to .tflite first"
    assert (1, f"error: --splits: {complaint}\n") == (ended.code, ended.err)
