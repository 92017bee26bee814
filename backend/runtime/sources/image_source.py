"""Frames from image files, made into the tensor that a model expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import Source, accepted
from .image_sizes import Fit, ImageInput, image_input

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..job import TensorSpec
    from ..options import Preprocessing, RunOptions
    from ..sizes import Slot

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")
_MAX_LOOKED_AT = 100
"""Images, to see whether they have the model's size."""
_BILINEAR = 2
"""Pillow's number for it."""


class ImageSource(Source):
    """Image files, in the order given; folders stand for their images, sorted.

    They are resized to the model input. Where that leaves height and width open, images keep their
    sizes, and those beyond the bound are scaled down to fit, or refused with ``--keep-size``.
    Frames beyond their number begin again at the first.
    """

    usage = ("IMAGE", "FOLDER")
    description = f"images ({', '.join(SUFFIXES)}), folders of them"
    is_last_resort = True
    can_replay = True
    frames: int

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        """Return whether all inputs are there: an image may have any name."""
        return all(Path(name).exists() for name in inputs)

    def __init__(self, options: RunOptions, inputs: Sequence[TensorSpec]) -> None:
        """Look for the files.

        Raises:
            JobError: the model has several inputs or one that takes no image, there is no file, or
                an image is too large.
        """
        paths = [image for name in options.inputs for image in _images(Path(name))]
        if len(inputs) != 1:
            raise JobError(f"--input: images feed models of one input; this one has {len(inputs)}")
        if not paths:
            raise JobError(f"--input: no image found; expected {accepted()}")
        for path in paths:
            if not path.is_file():  # a pipe would never end
                raise JobError(f"{path}: is not a regular file; expected {accepted()}")
            if path.suffix.lower() not in SUFFIXES:  # found before the start
                _size_of(path)
        self._paths = paths
        self._input = inputs[0]
        self._preprocessing = options.preprocessing
        self._takes = image_input(inputs[0], options.preprocessing)
        self.frames = len(paths) if options.frames is None else options.frames
        if options.preprocessing.keep_size:
            for path, size in self._first_sizes():
                self._takes.fit(size, path.name)

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Decode the frame's file into the slot."""
        load_image(self.path(index), self._input, self._preprocessing, slots[0])

    def label(self, index: int) -> str:
        """Return the name of the frame's file."""
        return self.path(index).name

    def path(self, index: int) -> Path:
        """Return the frame's file."""
        return self._paths[index % len(self._paths)]

    def fit(self, index: int) -> tuple[tuple[int, int], Fit]:
        """Return height and width of the frame's image, and how it becomes the frame.

        Raises:
            JobError: it is no image, or does not fit.
        """
        path = self.path(index)
        size = _size_of(path)
        return size, self._takes.fit(size, path.name)

    def note(self) -> str:
        """Return what is done to the first image of another size; empty: all fit.

        With ``--size`` the user has chosen the size, so there is nothing to note.
        """
        if self._preprocessing.size is not None:
            return ""
        for path, size in self._first_sizes():
            if self._takes.fit(size, path.name).resized != size:
                return f"{path.name} has {size[0]}x{size[1]} pixels, {self._takes.note()}"
        return ""

    def _first_sizes(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        """Yield the first images with height and width, up to one that the run will refuse."""
        for path in self._paths[:_MAX_LOOKED_AT]:
            try:
                size = _size_of(path)
            except JobError:
                return
            yield path, size


def _images(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)


def load_image(path: Path, spec: TensorSpec, preprocessing: Preprocessing, slot: Slot) -> None:
    """Decode an image, fit it and write its values into ``slot``.

    Args:
        path: image file; three-channel models get RGB, one-channel models grey values.
        spec: the model input, [1, C, H, W] or [1, H, W, C].
        preprocessing: layout, size, mean and scale.
        slot: of the model input.

    Raises:
        JobError: the file is no image, or the sizes do not fit; or no decoder is installed.
    """
    takes = image_input(spec, preprocessing)
    with opened_image(path) as opened:
        write_image(opened, path.name, takes, slot)


def write_image(opened: Any, name: str, takes: ImageInput, slot: Slot) -> None:
    """Fit an image and write its values into ``slot``.

    Args:
        opened: an image of pillow.
        name: its name, for messages.
        takes: the model input, and what the options say.
        slot: of the model input.

    Raises:
        JobError: the sizes do not fit.
    """
    import numpy as np

    from ..sizes import shaped

    channels, preprocessing = takes.channels, takes.preprocessing
    fit = takes.fit((opened.height, opened.width), name)
    image = opened.convert("RGB" if channels == 3 else "L")
    if image.size != fit.resized[::-1]:
        image = image.resize(fit.resized[::-1], _BILINEAR)
    (top, left), (height, width) = fit.corner, fit.size
    image = image.crop((left, top, left + width, top + height))
    pixels = np.asarray(image, np.float32).reshape(height, width, channels)
    mean = _per_channel("mean", preprocessing.mean, channels)
    scale = _per_channel("scale", preprocessing.scale, channels)
    values = (pixels - mean) * scale
    frame = shaped(slot, takes.frame_shape(fit.size))
    frame[0] = values.transpose(2, 0, 1) if preprocessing.layout == "nchw" else values


def _size_of(path: Path) -> tuple[int, int]:
    """Return height and width of an image, from its head.

    Raises:
        JobError: the file is no image, or no decoder is installed.
    """
    with opened_image(path) as image:
        width, height = image.size
        return height, width


def pillow() -> Any:
    """Return the module ``PIL.Image``.

    Raises:
        JobError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise JobError("images need the package pillow on the source board") from None
    return Image


@contextmanager
def opened_image(path: Path) -> Iterator[Any]:
    """Yield an opened image; errors within the block name the file."""
    Image = pillow()  # noqa: N806
    from .numpy_files import open_ordinary

    with open_ordinary(path) as file:
        try:
            with Image.open(file) as image:
                yield image
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            reason = str(error).replace(f" {file!r}", "")
            raise JobError(
                f"{path}: not an image that can be read ({reason}); expected {accepted()}"
            ) from None


def _per_channel(name: str, values: Sequence[float], channels: int) -> NDArray[np.float32]:
    if len(values) not in (1, channels):
        raise JobError(f"{name} has {len(values)} values, expected 1 or {channels}")
    import numpy as np

    return np.asarray(values, np.float32)


SOURCE = ImageSource
