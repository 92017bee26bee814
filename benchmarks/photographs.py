"""A task for networks of real size without a download: to tell parts of photographs apart.

scikit-learn comes with two photographs. Each is divided into six tiles, and an image is a square
out of one of the twelve: somewhere in it, smaller or larger, mirrored or not, lighter or darker,
with noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError

CLASSES = 12
"""How many tiles there are."""

_ROWS, _COLUMNS = 2, 3
_MIN_SHARE = 0.85
"""Shortest side of a crop, as a share of its tile's."""
_CONTRAST = (0.9, 1.1)
_LIGHTER, _NOISE = 6.0, 3.0
"""The most that is added to all pixels, and the standard deviation of what is added to each."""


def photograph_crops(
    count: int, size: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images [count, size, size, 3], pixels about 0 to 255, and the tile of each, below 12.

    Args:
        count: how many; the tiles take turns.
        size: pixels of a side.
        seed: another one, other crops.

    Raises:
        RankSliceError: scikit-learn is not installed.
    """
    from PIL import Image

    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        hint = "pip install scikit-learn"
        raise RankSliceError(
            Mistake("photographs", "scikit-learn is not installed", hint)
        ) from None
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    images = np.empty((count, size, size, 3), np.float32)
    for image, label in zip(images, labels, strict=True):
        photograph, tile = divmod(int(label), _ROWS * _COLUMNS)
        box = _box(random, photographs[photograph].size, tile)
        crop = photographs[photograph].resize((size, size), Image.Resampling.BILINEAR, box=box)
        image[...] = _varied(random, np.asarray(crop, np.float32))
    return images, labels


def _box(
    random: np.random.Generator, size: tuple[int, int], tile: int
) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a square in a tile, at random."""
    width, height = size[0] / _COLUMNS, size[1] / _ROWS
    row, column = divmod(tile, _COLUMNS)
    side = min(width, height) * random.uniform(_MIN_SHARE, 1.0)
    left = column * width + random.uniform(0, width - side)
    top = row * height + random.uniform(0, height - side)
    return left, top, left + side, top + side


def _varied(random: np.random.Generator, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image mirrored or not, with another contrast and brightness, and with noise."""
    turned = pixels[:, ::-1] if random.random() < 0.5 else pixels
    contrast, lighter = random.uniform(*_CONTRAST), random.uniform(-_LIGHTER, _LIGHTER)
    noise = random.normal(0, _NOISE, pixels.shape).astype(np.float32)
    return np.float32(contrast) * (turned - 127.5) + np.float32(127.5 + lighter) + noise
