"""Images from files, made into the tensor that a model expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import TensorSpec
from .arrays import open_ordinary

__all__ = [
    "ACCEPTED",
    "IMAGE_SUFFIXES",
    "Preprocessing",
    "image_shape",
    "image_size",
    "load_image",
]

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")

ACCEPTED = f"images ({', '.join(IMAGE_SUFFIXES)}), folders of them, an .npz or an .npy file"
"""What frames are read from."""

_BILINEAR = 2
"""Pillow's number for it."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How pixels become values: ``(pixel - mean) * scale``, pixels being 0 to 255."""

    layout: str = "nchw"
    """``nchw`` or ``nhwc``."""
    size: tuple[int, int] | None = None
    """Height and width to resize to, before the middle is cut out in the size of the model input;
    ``None``: resize to the model input."""
    mean: tuple[float, ...] = (0.0,)
    """One value, or one per channel, in pixel units."""
    scale: tuple[float, ...] = (1 / 255,)
    """One value, or one per channel."""


def image_shape(spec: TensorSpec, layout: str) -> tuple[int, int, int]:
    """Return channels, height and width of a model input.

    Raises:
        JobError: the input is no batch of one image with one or three channels.
    """
    if len(spec.shape) == 4 and spec.shape[0] == 1:
        _, *rest = spec.shape
        channels, height, width = rest if layout == "nchw" else (rest[2], rest[0], rest[1])
        if channels in (1, 3):
            return channels, height, width
    raise JobError(
        f"model input {spec.name!r} of shape {list(spec.shape)} takes no image in layout {layout};"
        " expected one image of 1 or 3 channels"
    )


def load_image(
    path: Path, spec: TensorSpec, preprocessing: Preprocessing, slot: NDArray[Any]
) -> None:
    """Decode an image, fit it and write its values into ``slot``.

    Args:
        path: image file; three-channel models get RGB, one-channel models grey values.
        spec: the model input, [1, C, H, W] or [1, H, W, C].
        preprocessing: layout, size, mean and scale.
        slot: array of the model input's shape and type.

    Raises:
        JobError: the file is no image, or the sizes do not fit; or no decoder is installed.
    """
    channels, height, width = image_shape(spec, preprocessing.layout)
    resized = preprocessing.size or (height, width)
    top, left = (resized[0] - height) // 2, (resized[1] - width) // 2
    if top < 0 or left < 0:
        raise JobError(
            f"images resized to {resized[0]}x{resized[1]} are smaller than the model input,"
            f" {height}x{width}"
        )
    with _opened(path) as opened:
        image = opened.convert("RGB" if channels == 3 else "L")
        if image.size != resized[::-1]:
            image = image.resize(resized[::-1], _BILINEAR)
        image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, np.float32).reshape(height, width, channels)
    mean = _per_channel("mean", preprocessing.mean, channels)
    scale = _per_channel("scale", preprocessing.scale, channels)
    values = (pixels - mean) * scale
    slot[0] = values.transpose(2, 0, 1) if preprocessing.layout == "nchw" else values


def image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image, from its head.

    Raises:
        JobError: the file is no image, or no decoder is installed.
    """
    with _opened(path) as image:
        width, height = image.size
        return height, width


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield an image, opened; what goes wrong with it within the block is told of the file."""
    try:
        from PIL import Image
    except ImportError:
        raise JobError("images need the package pillow on the source board") from None
    with open_ordinary(path) as file:
        try:
            with Image.open(file) as image:
                yield image
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            reason = str(error).replace(f" {file!r}", "")
            raise JobError(
                f"{path}: not an image that can be read ({reason}); expected {ACCEPTED}"
            ) from None


def _per_channel(name: str, values: Sequence[float], channels: int) -> NDArray[np.float32]:
    if len(values) not in (1, channels):
        raise JobError(f"{name} has {len(values)} values, expected 1 or {channels}")
    return np.asarray(values, np.float32)
