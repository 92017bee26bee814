"""The digit classifier that ships with RankSlice, and images it was not trained with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError

_FOLDER = files("rankslice") / "models"


def digits_model() -> Path:
    """Return the file of the classifier: ``image`` [1, 1, 8, 8] to ``probabilities`` [1, 10]."""
    return Path(str(_FOLDER / "digits.onnx"))


def digits_labels() -> tuple[str, ...]:
    """Return the names of the ten classes, ``zero`` first."""
    return tuple((_FOLDER / "digits_labels.txt").read_text(encoding="utf-8").split())


def heldout_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the held-out images, [360, 8, 8] from 0 (paper) to 255 (ink), and their digits, [360].

    The classifier takes an image as float32, each pixel divided by 256.
    """
    with (
        (_FOLDER / "digits_heldout.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return arrays["images"], arrays["labels"]


def write_digit_images(folder: Path, count: int) -> list[Path]:
    """Write the first ``count`` held-out images as grey PNG files; return their paths, in order.

    A name tells the image's number and its digit: ``digit_0007_label3.png``. Sorted by name they
    stand in order.

    Raises:
        RankSliceError: ``count`` is not between 1 and the number of held-out images.
    """
    from PIL import Image

    images, labels = heldout_digits()
    if not 1 <= count <= len(images):
        where, expected = "digit images", f"1 to {len(images)} are there"
        raise RankSliceError(Mistake(where, f"{count} asked for", expected))
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"digit_{i:04}_label{label}.png" for i, label in enumerate(labels[:count])]
    for path, image in zip(paths, images, strict=False):
        Image.fromarray(image).save(path)
    return paths
