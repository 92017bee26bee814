"""The shipped digit classifier, its held-out images and its training."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.framework.errors import RankSliceError
from rankslice.models import train_digits
from rankslice.networks.digits import (
    digits_labels,
    digits_model,
    heldout_digits,
    write_digit_images,
)

onnxruntime = load_onnxruntime()

MODELS = Path(str(files("rankslice") / "models"))


def answers(model: Path, images: Iterable[NDArray[np.uint8]]) -> list[int]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    frames = (np.float32(image)[None, None] / np.float32(256) for image in images)
    return [int(session.run(None, {"image": frame})[0].argmax()) for frame in frames]


def test_the_accuracy_is_the_one_that_model_and_readme_state() -> None:
    images, labels = heldout_digits()
    accuracy = float(np.mean(np.array(answers(digits_model(), images)) == labels))
    facts = {prop.key: prop.value for prop in onnx.load(digits_model()).metadata_props}
    assert f"{accuracy:.4f}" == facts["held-out accuracy"]
    assert f"| accuracy | {accuracy:.2%}".replace("%", " %") in (MODELS / "README.md").read_text()
    assert accuracy >= 0.97


def test_the_model_is_small_valid_and_raises_no_warning(
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = digits_model()
    onnx.checker.check_model(path, full_check=True)
    answers(path, heldout_digits()[0][:1])
    assert capfd.readouterr() == ("", "")
    assert path.stat().st_size < 300_000


def test_the_layers_are_the_ones_the_readme_names() -> None:
    names = [node.name for node in onnx.load(digits_model()).graph.node]
    assert f"`{' '.join(names)}`" in (MODELS / "README.md").read_text()


def test_the_readme_counts_the_parameters() -> None:
    weights = onnx.load(digits_model()).graph.initializer
    count = sum(int(np.prod(weight.dims)) for weight in weights)
    assert f"{count:,} parameters".replace(",", " ") in (MODELS / "README.md").read_text()


def test_the_held_out_images_are_the_last_of_the_data_set() -> None:
    images, labels = heldout_digits()
    source = load_digits()
    np.testing.assert_array_equal(np.minimum(source.images[-360:] * 16, 255), images)
    np.testing.assert_array_equal(source.target[-360:], labels)
    assert (np.uint8, np.int64) == (images.dtype, labels.dtype)


def test_image_files_give_back_the_pixels_and_name_their_label(tmp_path: Path) -> None:
    images, labels = heldout_digits()
    paths = write_digit_images(tmp_path / "new", 12)
    assert f"digit_0007_label{labels[7]}.png" == paths[7].name
    assert paths == sorted((tmp_path / "new").iterdir())
    np.testing.assert_array_equal(images[:12], [np.asarray(Image.open(path)) for path in paths])


def test_labels_are_the_ten_digits_in_order() -> None:
    expected = "zero one two three four five six seven eight nine"
    assert tuple(expected.split()) == digits_labels()


@pytest.mark.parametrize("count", [0, 361])
def test_more_images_than_there_are_or_none_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(RankSliceError, match=rf"{count} asked for; 1 to 360 are there"):
        write_digit_images(tmp_path, count)
    assert not list(tmp_path.iterdir())


def test_gradients_are_those_of_finite_differences() -> None:
    random = np.random.default_rng(5)
    weights = {k: np.float64(w) for k, w in train_digits.initial_weights(random).items()}
    x, labels = random.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])

    def loss() -> float:
        return float(train_digits.loss_and_gradients(weights, x, labels)[0])

    _, found = train_digits.loss_and_gradients(weights, x, labels)
    for name, weight in weights.items():
        direction = random.standard_normal(weight.shape)
        step = 1e-6 * direction
        weight += step
        above = loss()
        weight -= 2 * step
        below = loss()
        weight += step
        expected = (above - below) / 2e-6
        assert expected == pytest.approx(float((found[name] * direction).sum()), rel=1e-4, abs=1e-7)


@pytest.mark.slow
def test_training_again_reaches_97_percent(tmp_path: Path) -> None:
    train_digits.main(tmp_path)
    images, labels = heldout_digits()
    accuracy = np.mean(np.array(answers(tmp_path / "digits.onnx", images)) == labels)
    assert accuracy >= 0.97
