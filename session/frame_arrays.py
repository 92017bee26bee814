"""A frame that a program gives, checked against the plan before it travels."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sizes import differing_size
from rankslice.backend.runtime.sources.image_input import ImageInput, image_input
from rankslice.backend.runtime.sources.video_source import MAX_PIXELS
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.wording import joined, listed, quoted

Values: TypeAlias = "ArrayLike | Path"
Frame: TypeAlias = "Values | Mapping[str, Values]"


def images_of(inputs: Sequence[Tensor], preprocessing: Preprocessing) -> ImageInput | None:
    """Return what a model takes of images; ``None``: it takes none.

    Raises:
        RankSliceError: it takes none, and options of images are given.
    """
    try:
        if len(inputs) != 1:
            raise JobError(f"options of images are given, and the model has {len(inputs)} inputs")
        return image_input(inputs[0], preprocessing)
    except JobError as error:
        if preprocessing == Preprocessing():
            return None
        raise RankSliceError(Mistake("images", str(error))) from None


def arrays_of(
    frame: Frame, inputs: Sequence[Tensor], images: ImageInput | None = None
) -> list[NDArray[Any]]:
    """Return the arrays of a frame by input: contiguous copies.

    Where the model takes ``images``, a path, the bytes of an image file, and an array of ``uint8``
    and shape ``[H, W]`` or ``[H, W, C]``, C being grey, RGB or RGBA, become its input.

    Raises:
        RankSliceError: an input is missing or unknown, or has a type or shape that it cannot have.
            All mistakes at once.
    """
    by_name = _by_name(frame, inputs)
    names = [spec.name for spec in inputs]
    raise_mistakes(
        Mistake("frame", f"the model has no input {quoted(name)}", nearest(name, names))
        for name in by_name
        if name not in names
    )
    missing = [name for name in names if name not in by_name]
    if missing:
        raise RankSliceError(Mistake("frame", f"has no input {listed(missing)}"))
    arrays = [_array(spec, by_name[spec.name], images) for spec in inputs]
    pairs = list(zip(inputs, arrays, strict=True))
    raise_mistakes(
        Mistake(f"input {quoted(spec.name)}", found, expected)
        for spec, values in pairs
        for found, expected in _mistakes(spec, values)
    )
    if found := differing_size((spec, values.shape) for spec, values in pairs):
        raise RankSliceError(Mistake("frame", found))
    return [np.array(values, order="C") for values in arrays]


def _array(spec: Tensor, values: Any, images: ImageInput | None) -> NDArray[Any]:
    where = f"input {quoted(spec.name)}"
    try:
        if images is not None and isinstance(values, (str, Path, bytes)):
            return _frame_of_file(values, images)
        array = np.asarray(values)
        if images is not None and array.dtype == np.uint8 and array.ndim in (2, 3):
            return _frame_of_pixels(array, images)
    except JobError as error:
        raise RankSliceError(Mistake(where, str(error))) from None
    except (TypeError, ValueError) as error:
        raise RankSliceError(Mistake(where, f"is not an array: {error}")) from None
    return array


def _frame_of_file(file: str | Path | bytes, images: ImageInput) -> NDArray[Any]:
    from rankslice.backend.runtime.sources.image_source import frame_of, image_in, opened_image

    if isinstance(file, bytes):
        with image_in(io.BytesIO(file), "image") as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise JobError(f"the image has more than {MAX_PIXELS} pixels")
            return frame_of(opened, "the image", images)
    with opened_image(Path(file)) as opened:
        return frame_of(opened, Path(file).name, images)


def _frame_of_pixels(pixels: NDArray[np.uint8], images: ImageInput) -> NDArray[Any]:
    from rankslice.backend.runtime.sources.image_source import frame_of, pillow

    if not pixels.size or pixels.shape[2:] not in ((), (1,), (3,), (4,)):
        raise JobError(f"an image of shape {list(pixels.shape)}; expected [H, W] or [H, W, 1|3|4]")
    is_grey = pixels.shape[2:] == (1,)
    image = pillow().fromarray(pixels[:, :, 0] if is_grey else pixels)
    return frame_of(image, "the image", images)


def _by_name(frame: Frame, inputs: Sequence[Tensor]) -> dict[str, Any]:
    if isinstance(frame, Mapping):
        return {str(name): values for name, values in frame.items()}
    if len(inputs) != 1:
        names = joined([quoted(spec.name) for spec in inputs])
        expected = "give a dictionary of arrays by name"
        raise RankSliceError(Mistake("frame", f"the model has the inputs {names}", expected))
    return {inputs[0].name: frame}


def _mistakes(spec: Tensor, values: NDArray[Any]) -> list[tuple[str, str]]:
    dtype, largest = spec.storage
    mistakes: list[tuple[str, str]] = []
    if values.dtype != dtype:
        mistakes.append((f"has values of type {values.dtype}", f"expected {dtype}"))
    if not spec.is_open and values.shape != largest:
        mistakes.append((f"has the shape {list(values.shape)}", f"expected {list(largest)}"))
    elif spec.is_open:
        try:
            spec.of_shape(values.shape)
        except JobError as error:
            mistakes.append((str(error), ""))
    return mistakes
