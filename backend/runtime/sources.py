"""Where frames come from: random values, ``.npz`` files, images."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import JobError
from .images import IMAGE_SUFFIXES, Preprocessing, image_shape, load_image
from .job import TensorSpec
from .stages import Source

__all__ = ["ImageSource", "NpzSource", "RandomSource", "open_source"]

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    AttributeError,  # Python 3.10, of a file that holds one array only
    TypeError,  # later ones, of the same
    NotImplementedError,  # a way to compress that zipfile lacks
    RuntimeError,  # encrypted
    MemoryError,  # a head that claims a size beyond all bounds
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy raises for files that are no archives of plain arrays."""


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

    def close(self) -> None:
        """Nothing is held."""


class NpzSource:
    """Arrays of an ``.npz`` file, one per model input: single frames or [N, ...] stacks."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], frames: int | None) -> None:
        """Read the arrays; ``frames`` beyond their number begin again at the first.

        Raises:
            JobError: the file cannot be read, or its arrays do not fit the model inputs.
        """
        self._path = path
        arrays = _read_npz(path)
        self._stacks = [_stack(path, arrays, spec) for spec in inputs]
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
            slot[...] = stack[index % self._count]

    def label(self, index: int) -> str:
        """Name the frame."""
        return f"{self._path.name}[{index % self._count}]"

    def close(self) -> None:
        """The arrays are in memory."""


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except _UNREADABLE as error:
        raise JobError(
            f"{path}: is no .npz file of plain arrays{_reason(error)}; numpy.savez makes one"
        ) from None


def _reason(error: Exception) -> str:
    """Return what an error says, but not numpy's advice on how to read files that run code."""
    text = str(error)
    return f" ({text})" if text and "pickle" not in text else ""


def _stack(path: Path, arrays: dict[str, NDArray[Any]], spec: TensorSpec) -> NDArray[Any]:
    if spec.name not in arrays:
        raise JobError(f"{path}: has no array {spec.name!r}; it has {sorted(arrays)}")
    array = arrays[spec.name]
    dtype, shape = spec.storage
    if array.dtype != dtype:
        raise JobError(f"{path}: {spec.name!r} is {array.dtype}; the model takes {dtype}")
    if array.shape == shape:
        return array[np.newaxis]
    if array.shape[1:] == shape:
        return array
    if array.shape[1:] == shape[1:] and shape[:1] == (1,):
        return array[:, np.newaxis]
    raise JobError(
        f"{path}: {spec.name!r} has shape {list(array.shape)}; expected {list(shape)} or a stack"
        f" [N, {', '.join(map(str, shape))}]"
    )


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
            endings = ", ".join(IMAGE_SUFFIXES)
            raise JobError(f"--input: no image found; expected files that end in {endings}")
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
        given: ``random``, or one ``.npz`` file, or image files and folders of images (sorted).
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
            raise JobError(f"{path}: no such file or folder")
    if any(path.suffix == ".npz" for path in paths):
        if len(paths) > 1:
            raise JobError("--input: an .npz file must be the only input")
        return NpzSource(paths[0], inputs, frames)
    images = [image for path in paths for image in _images(path)]
    return ImageSource(images, inputs, preprocessing or Preprocessing(), frames)


def _images(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
