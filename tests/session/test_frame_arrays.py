"""Frames that programs give are checked before they travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sources.image_input import image_input
from rankslice.backend.runtime.sources.image_source import load_image
from rankslice.framework.errors import RankSliceError
from rankslice.session.frame_arrays import arrays_of, images_of

IMAGE = Tensor("image", "float32", (1, 3, 4))
TOKENS = Tensor("tokens", "int64", (1, 8), ("", "n"))
MASK = Tensor("mask", "int64", (1, 8), ("", "n"))


def test_an_array_is_the_frame_of_a_model_with_one_input() -> None:
    values = np.ones((1, 3, 4), np.float32)
    for frame in (values, {"image": values}):
        (array,) = arrays_of(frame, [IMAGE])
        assert (values == array).all()


def test_a_frame_is_copied_whatever_its_layout() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3, 1).T
    (array,) = arrays_of(values, [IMAGE])
    assert array.flags.c_contiguous
    values[:] = 0
    assert 11 == array.max()


def test_open_sizes_may_be_anything_up_to_their_bound() -> None:
    frame = {"mask": np.zeros((1, 3), np.int64), "tokens": np.ones((1, 3), np.int64)}
    tokens, mask = arrays_of(frame, [TOKENS, MASK])
    assert (1, 3) == tokens.shape == mask.shape
    assert 3 == tokens.sum()


@pytest.mark.parametrize(
    ("frame", "inputs", "message"),
    [
        (
            np.zeros((3, 4)),
            [IMAGE],
            r"input 'image': has values of type float64; expected float32\n"
            r"input 'image': has the shape \[3, 4\]; expected \[1, 3, 4\]",
        ),
        ({"imag": 1}, [IMAGE], "frame: the model has no input 'imag'; did you mean 'image'"),
        ({}, [IMAGE], "frame: has no input 'image'"),
        ("text", [IMAGE], "has values of type <U4; expected float32"),
        ([[1.0], [2.0, 3.0]], [IMAGE], "input 'image': is not an array"),
        (np.zeros(3), [TOKENS, MASK], "the model has the inputs 'tokens' and 'mask'"),
        (
            {"tokens": np.zeros((1, 9), np.int64), "mask": np.zeros((1, 1), np.int64)},
            [TOKENS, MASK],
            "beyond its bound",
        ),
        (
            {"tokens": np.zeros((1, 2), np.int64), "mask": np.zeros((1, 1), np.int64)},
            [TOKENS, MASK],
            "frame: size 'n' is 2 in 'tokens' and 1 in 'mask'",
        ),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(
    frame: Any, inputs: list[Tensor], message: str
) -> None:
    with pytest.raises(RankSliceError, match=message):
        arrays_of(frame, inputs)


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
PHOTO = Tensor("photo", "float32", (1, 3, 3, 4))


def test_an_image_becomes_the_frame_of_a_model_that_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "i.png"
    Image.fromarray(PIXELS).save(path)
    wanted = Preprocessing(preprocess="tf")
    slot = np.empty(PHOTO.shape, np.float32)
    load_image(path, image_input(PHOTO, wanted), slot)
    images = images_of([PHOTO], wanted)
    for frame in (path, str(path), path.read_bytes(), PIXELS, Image.open(path), {"photo": PIXELS}):
        (values,) = arrays_of(frame, [PHOTO], images)
        np.testing.assert_array_equal(slot, values)
    (values,) = arrays_of(PIXELS[:, :, :1], [PHOTO], images)
    np.testing.assert_array_equal(arrays_of(PIXELS[:, :, 0], [PHOTO], images)[0], values)
    (values,) = arrays_of(slot, [PHOTO], images)
    assert (slot == values).all()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"no image", "input 'photo': image: not an image that can be read"),
        ("missing.png", "input 'photo': missing.png: cannot be read: No such file"),
        (np.zeros((2, 2, 2), np.uint8), r"input 'photo': an image of shape \[2, 2, 2\]; expected"),
        (np.zeros((0, 2), np.uint8), r"input 'photo': an image of shape \[0, 2\]; expected"),
    ],
)
def test_what_is_no_image_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(RankSliceError, match=message):
        arrays_of(frame, [PHOTO], images_of([PHOTO], Preprocessing()))


def test_options_of_images_need_a_model_that_takes_them() -> None:
    assert images_of([TOKENS], Preprocessing()) is None
    assert images_of([TOKENS, MASK], Preprocessing()) is None
    for inputs in ([TOKENS], [TOKENS, MASK]):
        with pytest.raises(RankSliceError, match="images: "):
            images_of(inputs, Preprocessing(preprocess="caffe"))
