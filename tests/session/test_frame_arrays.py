"""Frames that programs give are checked before they travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import RankSliceError
from rankslice.session.frame_arrays import arrays_of

IMAGE = Tensor("image", "float32", (1, 3, 4))
TOKENS = Tensor("tokens", "int64", (1, 8), ("", "n"))
MASK = Tensor("mask", "int64", (1, 8), ("", "n"))


def test_an_array_is_the_frame_of_a_model_with_one_input() -> None:
    values = np.ones((1, 3, 4), np.float32)
    for frame in (values, {"image": values}):
        (found,) = arrays_of(frame, [IMAGE])
        assert (values == found).all()


def test_a_frame_is_copied_whatever_its_layout() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3, 1).T
    (found,) = arrays_of(values, [IMAGE])
    assert found.flags.c_contiguous
    values[:] = 0
    assert 11 == found.max()


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
