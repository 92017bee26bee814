"""Images made into model inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import TensorSpec
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sources.image_source import load_image

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
"""4 rows, 6 columns, RGB."""

RAW = Preprocessing(scale=(1.0,))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.fromarray(PIXELS).save(path)
    return path


def load(path: Path, shape: tuple[int, ...], preprocessing: Preprocessing) -> NDArray[Any]:
    slot = np.full(shape, np.nan, np.float32)
    load_image(path, TensorSpec("x", "float32", shape), preprocessing, slot)
    return slot


def test_layout_nchw_puts_channels_first(image: Path) -> None:
    np.testing.assert_array_equal(
        PIXELS.transpose(2, 0, 1)[np.newaxis], load(image, (1, 3, 4, 6), RAW)
    )


def test_layout_nhwc_puts_channels_last(image: Path) -> None:
    found = load(image, (1, 4, 6, 3), Preprocessing("nhwc", scale=(1.0,)))
    np.testing.assert_array_equal(PIXELS[np.newaxis], found)


def test_pixels_become_values_from_0_to_1_unless_told_otherwise(image: Path) -> None:
    found = load(image, (1, 3, 4, 6), Preprocessing())
    np.testing.assert_allclose(PIXELS.transpose(2, 0, 1)[np.newaxis] / 255, found, rtol=1e-6)


def test_the_mean_is_taken_away_before_scaling(image: Path) -> None:
    found = load(image, (1, 3, 4, 6), Preprocessing(mean=(10.0,), scale=(0.5,)))
    np.testing.assert_array_equal((PIXELS.transpose(2, 0, 1)[np.newaxis] - 10.0) * 0.5, found)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_each_channel_may_have_its_own_mean_and_scale(image: Path, layout: str) -> None:
    mean, scale = (1.0, 2.0, 3.0), (0.5, 0.25, 2.0)
    expected = (PIXELS - np.array(mean)) * np.array(scale)
    if layout == "nchw":
        expected = expected.transpose(2, 0, 1)
    shape = (1, *expected.shape)
    found = load(image, shape, Preprocessing(layout, mean=mean, scale=scale))
    np.testing.assert_array_equal(expected[np.newaxis], found)


def test_the_middle_is_cut_out_of_what_size_gives(image: Path) -> None:
    preprocessing = Preprocessing(size=(4, 6), scale=(1.0,))
    expected = PIXELS[1:3, 2:4].transpose(2, 0, 1)[np.newaxis]
    np.testing.assert_array_equal(expected, load(image, (1, 3, 2, 2), preprocessing))


def test_an_image_of_another_size_is_resized_to_the_model_input(tmp_path: Path) -> None:
    Image.new("RGB", (50, 30), (10, 20, 30)).save(tmp_path / "i.png")
    found = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(np.full((4, 6), 20), found[0, 1])


def test_a_model_of_one_channel_gets_grey_values(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(tmp_path / "i.png")
    found = load(tmp_path / "i.png", (1, 1, 4, 6), RAW)
    np.testing.assert_array_equal(grey[np.newaxis, np.newaxis], found)


def test_a_grey_image_fills_all_three_channels(tmp_path: Path) -> None:
    Image.new("L", (6, 4), 7).save(tmp_path / "i.png")
    np.testing.assert_array_equal(
        np.full((1, 3, 4, 6), 7), load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    )


def test_transparency_is_left_out(tmp_path: Path) -> None:
    Image.new("RGBA", (6, 4), (7, 7, 7, 0)).save(tmp_path / "i.png")
    np.testing.assert_array_equal(
        np.full((1, 3, 4, 6), 7), load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    )


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 20])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(JobError, match=r"broken\.png: not an image that can be read"):
        load(tmp_path / "broken.png", (1, 3, 4, 6), RAW)


def test_an_image_that_was_cut_short_is_named(image: Path) -> None:
    image.write_bytes(image.read_bytes()[:50])
    with pytest.raises(JobError, match=r"image\.png: not an image that can be read"):
        load(image, (1, 3, 4, 6), RAW)


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        (Preprocessing(mean=(1.0, 2.0)), "mean has 2 values, expected 1 or 3"),
        (Preprocessing(scale=(1.0,) * 4), "scale has 4 values, expected 1 or 3"),
        (
            Preprocessing(size=(3, 6)),
            "images resized to 3x6 are smaller than the model input, 4x6",
        ),
        (
            Preprocessing("nhwc"),
            "model input 'x' of shape [1, 3, 4, 6] accepts no images in layout nhwc;"
            " expected one image of 1 or 3 channels",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_told(
    image: Path, preprocessing: Preprocessing, message: str
) -> None:
    with pytest.raises(JobError) as error:
        load(image, (1, 3, 4, 6), preprocessing)
    assert message == str(error.value)


@pytest.mark.parametrize("shape", [(3, 4, 6), (2, 3, 4, 6), (1, 2, 4, 6), ()])
def test_a_model_input_that_is_no_single_image_takes_none(
    image: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(JobError, match="accepts no images in layout nchw"):
        load(image, shape, RAW)
