"""Frames from image files, made into the tensor that a model expects."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import FrameError, JobError
from . import FileSource, accepted, only_input, open_ordinary
from .image_input import ImageInput, image_input, input_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")
_MAX_LOOKED_AT = 100
"""Images, to see whether they have the model's size."""
_FILTERS = {"nearest": 0, "bilinear": 2, "bicubic": 3}
"""Pillow's numbers for them."""
_PADDING = 114.0
_ORIENTATION = 0x0112
"""EXIF's number for it."""
_TRANSPOSITIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""Pillow's number for what undoes an orientation."""


class ImageSource(FileSource):
    """Image files, in the order given; folders stand for their images, sorted.

    They are resized to the model input. Where that leaves height and width open, images keep their
    sizes, and those beyond the bound are scaled down to fit, or refused with ``--keep-size``.
    """

    usage = ("IMAGE", "FOLDER")
    description = f"images ({', '.join(SUFFIXES)}), folders of them"
    takes_several = True
    is_last_resort = True

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        """Return whether all inputs are there: an image may have any name."""
        return all(Path(name).exists() for name in inputs)

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        paths = [image for name in options.inputs for image in _images(Path(name))]
        spec = only_input(options, inputs)
        if not paths:
            raise JobError(f"--input: no image found; expected {accepted()}")
        for path in paths:
            if not path.is_file():  # a pipe would never end
                raise JobError(f"{path}: is not a regular file; expected {accepted()}")
            if path.suffix.lower() not in SUFFIXES:  # found before the start
                image_size(path)
        self.paths: Sequence[Path] = paths
        self._takes = image_input(spec, options.preprocessing)
        self._count_frames(len(paths), options)
        if self._takes.preprocessing.keep_size:
            for path, size in self._first_sizes():
                self._takes.fit(size, path.name)

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        load_image(self.path(index), self._takes, slots[0])

    def label(self, index: int) -> str:
        return self.path(index).name

    def path(self, index: int) -> Path:
        return self.paths[index % self._count]

    def note(self) -> str:
        """Return how the first image of another size is changed; empty: all fit."""
        notes = (self._takes.note(path.name, size) for path, size in self._first_sizes())
        return next(filter(None, notes), "")

    def _first_sizes(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        """Yield the first images with height and width, up to one that the run will refuse."""
        for path in self.paths[:_MAX_LOOKED_AT]:
            try:
                size = image_size(path)
            except JobError:
                return
            yield path, size


def _images(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if is_frame(file.name, SUFFIXES))


def is_frame(name: str, suffixes: Sequence[str]) -> bool:
    """Return whether a file of a folder is a frame; hidden ones are not, as macOS makes them."""
    return not name.startswith(".") and Path(name).suffix.lower() in suffixes


def load_image(path: Path, takes: ImageInput, slot: Slot) -> None:
    """Decode an image, fit it and write its values into the slot of the model input.

    Raises:
        JobError: the file is no image, or the sizes do not fit; or no decoder is installed.
    """
    with opened_image(path) as opened:
        write_image(opened, path.name, takes, slot)


def write_image(opened: Any, name: str, takes: ImageInput, slot: Slot) -> None:
    """Write the values of :func:`frame_of` into the slot of the model input."""
    from ..sizes import shaped

    frame = frame_of(opened, name, takes)
    shaped(slot, frame.shape)[...] = frame


def frame_of(opened: Any, name: str, takes: ImageInput) -> NDArray[Any]:
    """Return the values of the model input, in its shape and type, for an image of pillow.

    Three-channel inputs get colours, one-channel inputs grey values. Messages call the image
    ``name``.

    Raises:
        JobError: the sizes do not fit.
    """
    import numpy as np

    channels, preprocessing = takes.channels, takes.preprocessing
    image = decoded(opened, channels)
    fit = takes.fit((image.height, image.width), name)
    if image.size != fit.resized[::-1]:
        number = _FILTERS[preprocessing.interpolation or "bilinear"]
        image = image.resize(fit.resized[::-1], number)
    (top, left), (height, width) = fit.corner, fit.size
    if fit.resized[0] < height or fit.resized[1] < width:
        padding = _PADDING if preprocessing.pad is None else preprocessing.pad
        pixels = np.full((height, width, channels), padding, np.float32)
        inner = np.asarray(image, np.float32).reshape(*fit.resized, -1)
        pixels[-top : fit.resized[0] - top, -left : fit.resized[1] - left] = inner
    else:
        image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, np.float32).reshape(height, width, -1)
    if preprocessing.channel_order == "bgr":
        pixels = pixels[:, :, ::-1]
    values = input_values(np.broadcast_to(pixels, (height, width, channels)), takes)
    return (values.transpose(2, 0, 1) if preprocessing.layout == "nchw" else values)[np.newaxis]


def decoded(opened: Any, channels: int) -> Any:
    """Return an image of pillow as it is to be seen: turned as its EXIF orientation says.

    With 3 channels it is RGB, with 1 grey. Grey values of 16 bits become floats of 0 to 255.
    """
    import numpy as np

    opened.load()
    _drop_texts(opened)  # some stand behind the pixels
    if opened.mode.startswith("I"):
        grey = np.asarray(opened).astype(np.float32) / 257
        image = pillow().fromarray(grey.clip(0, 255))
    else:
        image = opened.convert("RGB" if channels == 3 else "L")
    turn = _TRANSPOSITIONS.get(_orientation(opened))
    image.info.pop("exif", None)
    return image if turn is None else image.transpose(turn)


def _orientation(opened: Any) -> int:
    """Return the EXIF orientation of an image; 1: it has none, or one that cannot be read."""
    exif = bytes(opened.info.get("exif", b"")).removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    with suppress(struct.error):
        begin = struct.unpack_from(f"{order}I", exif, 4)[0]
        entries = struct.unpack_from(f"{order}H", exif, begin)[0]
        for entry in range(entries):
            tag, value = struct.unpack_from(f"{order}H6xH", exif, begin + 2 + 12 * entry)
            if tag == _ORIENTATION:
                return int(value)
    return 1


def _drop_texts(image: Any) -> None:
    """Drop the texts of a PNG file: pillow takes one for settings that have its name."""
    for name in [name for name, value in image.info.items() if isinstance(value, str)]:
        del image.info[name]


def image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image, from its head.

    Raises:
        JobError: the file is no image, or no decoder is installed.
    """
    with opened_image(path) as image:
        width, height = image.size
        return (width, height) if _orientation(image) > 4 else (height, width)


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
    with open_ordinary(path) as file, image_in(file, str(path)) as image:
        yield image


@contextmanager
def image_in(file: IO[bytes], name: str) -> Iterator[Any]:
    """Yield the image of a file's bytes; errors within the block name it."""
    Image = pillow()  # noqa: N806
    try:
        with Image.open(file) as image:
            _drop_texts(image)
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).replace(f" {file!r}", "")
        raise FrameError(
            f"{name}: not an image that can be read ({reason}); expected {accepted()}"
        ) from None


SOURCE = ImageSource
