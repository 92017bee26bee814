"""Where frames come from: random values, numpy's files, images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import TensorSpec
from ..pipeline.stages import Source
from .arrays import FileStack, Stack, open_npy, read_npz
from .images import ACCEPTED, IMAGE_SUFFIXES, Preprocessing, image_shape, image_size, load_image

__all__ = ["ArraySource", "ImageSource", "RandomSource", "open_source"]

_ARRAYS = (".npy", ".npz")
_MAX_LOOKED_AT = 100
"""Images, to see whether they have the model's size."""


class RandomSource:
    """Seeded values: frame f is the same for the same seed, wherever it is made.

    Floats have mean 0 and variance 1, integers and booleans are 0 or 1.
    """

    def __init__(self, inputs: Sequence[TensorSpec], frames: int, seed: int = 0) -> None:
        self.frames = frames
        self._inputs = inputs
        self._seed = seed

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        """Fill the slots with the values of frame ``index``."""
        generator = np.random.Generator(np.random.SFC64([self._seed, index]))
        for spec, slot in zip(self._inputs, slots, strict=True):
            if spec.dtype in ("float32", "float64"):
                generator.random(out=slot, dtype=slot.dtype)
                slot -= 0.5
                slot *= math.sqrt(12)
            elif slot.dtype.kind == "f":
                slot[...] = (generator.random(slot.shape) - 0.5) * math.sqrt(12)
            elif spec.dtype == "bfloat16":  # the upper half of a float32
                values = (generator.random(slot.shape, np.float32) - 0.5) * math.sqrt(12)
                slot[...] = values.astype(np.float32).view(np.uint32) >> 16
            else:
                slot[...] = generator.integers(0, 2, slot.shape)

    def label(self, index: int) -> str:
        """Name the frame."""
        return f"random {index}"

    def resized(self) -> str:
        """Return an empty string: there are no images."""
        return ""

    def close(self) -> None:
        """Nothing is held."""


class ArraySource:
    """Arrays of a ``.npz`` or ``.npy`` file, one per model input: single frames or stacks."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], frames: int | None) -> None:
        """Read or open the arrays; ``frames`` beyond their number begin again at the first.

        Raises:
            JobError: the file cannot be read, or its arrays do not fit the model inputs.
        """
        self._path = path
        self._stacks = _stacks(path, inputs)
        lengths = {len(stack) for stack in self._stacks}
        if len(lengths) != 1 or not min(lengths):
            raise JobError(
                f"{path}: its arrays hold {sorted(lengths)} frames; one number > 0 needed"
            )
        self._count = lengths.pop()
        self.frames = self._count if frames is None else frames

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        """Copy the frame's arrays."""
        for stack, slot in zip(self._stacks, slots, strict=True):
            stack.read(index % self._count, slot)

    def label(self, index: int) -> str:
        """Name the frame."""
        return f"{self._path.name}[{index % self._count}]"

    def resized(self) -> str:
        """Return an empty string: there are no images."""
        return ""

    def close(self) -> None:
        """Close the file."""
        for stack in self._stacks:
            stack.close()


def _stacks(path: Path, inputs: Sequence[TensorSpec]) -> Sequence[Stack | FileStack]:
    if path.suffix.lower() == ".npz":
        return read_npz(path, inputs)
    if len(inputs) != 1:
        raise JobError(
            f"{path}: an .npy file feeds models of one input; this one has {len(inputs)}: give an"
            " .npz file with an array for each"
        )
    return [open_npy(path, inputs[0])]


class ImageSource:
    """Image files, in the order given."""

    def __init__(
        self,
        paths: Sequence[Path],
        inputs: Sequence[TensorSpec],
        preprocessing: Preprocessing,
        frames: int | None,
    ) -> None:
        """Keep the paths; ``frames`` beyond their number begin again at the first.

        Raises:
            JobError: the model has several inputs or one that takes no image, or there is no file.
        """
        if len(inputs) != 1:
            raise JobError(f"--input: images feed models of one input; this one has {len(inputs)}")
        if not paths:
            raise JobError(f"--input: no image found; expected {ACCEPTED}")
        for path in paths:
            if not path.is_file():  # a pipe, say, would never end
                raise JobError(f"{path}: is no ordinary file; expected {ACCEPTED}")
            if path.suffix.lower() not in IMAGE_SUFFIXES:  # told before the start
                image_size(path)
        image_shape(inputs[0], preprocessing.layout)
        self._paths = list(paths)
        self._input = inputs[0]
        self._preprocessing = preprocessing
        self.frames = len(self._paths) if frames is None else frames

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        """Decode the frame's file into the slot."""
        path = self._paths[index % len(self._paths)]
        load_image(path, self._input, self._preprocessing, slots[0])

    def label(self, index: int) -> str:
        """Name the frame: its file."""
        return self._paths[index % len(self._paths)].name

    def resized(self) -> str:
        """Return what is done to the first image that does not fit; empty: they fit.

        ``--size`` says what is done, so then it is no news.
        """
        if self._preprocessing.size is not None:
            return ""
        _, height, width = image_shape(self._input, self._preprocessing.layout)
        for path in self._paths[:_MAX_LOOKED_AT]:
            try:
                found = image_size(path)
            except JobError:
                return ""  # the run will tell
            if found != (height, width):
                return (
                    f"{path.name} has {found[0]}x{found[1]} pixels, the model takes"
                    f" {height}x{width}: images of another size are resized"
                )
        return ""

    def close(self) -> None:
        """No file stays open."""


def open_source(
    given: Sequence[str],
    inputs: Sequence[TensorSpec],
    *,
    frames: int | None = None,
    seed: int = 0,
    preprocessing: Preprocessing | None = None,
) -> Source:
    """Return the source that ``--input`` names.

    Args:
        given: ``random``, or one ``.npz`` or ``.npy`` file, or image files and folders of images
            (sorted).
        inputs: the model's inputs.
        frames: how many; ``None``: as many as there are, 100 for ``random``.
        seed: of ``random``.
        preprocessing: of images.

    Raises:
        JobError: nothing of that name can be read, or it does not fit the model.
    """
    if not given or list(given) == ["random"]:
        return RandomSource(inputs, 100 if frames is None else frames, seed)
    paths = [Path(name) for name in given]
    for path in paths:
        if not path.exists():
            raise JobError(f"{path}: no such file or folder; expected {ACCEPTED}")
    arrays = [path.suffix.lower() for path in paths if path.suffix.lower() in _ARRAYS]
    if arrays:
        if len(paths) > 1:
            raise JobError(f"--input: an {arrays[0]} file must be the only input")
        return ArraySource(paths[0], inputs, frames)
    images = [image for path in paths for image in _images(path)]
    return ImageSource(images, inputs, preprocessing or Preprocessing(), frames)


def _images(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
