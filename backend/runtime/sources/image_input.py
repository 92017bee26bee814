"""What a model input takes of images: their sizes, and the values of their pixels.

Images are resized, then their middle is cut out, or padding is put around them. The table in
docs/command-line.md, "Where frames come from", has the rules for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import JobError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import Preprocessing

_AXES = {"nchw": (1, 2, 3), "nhwc": (3, 1, 2)}
"""Of channels, height and width."""
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""Of the values that models are trained on."""
_CLOSE = 0.02
"""So much of a range may the limits of a quantised type differ from it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How one image becomes a frame; heights and widths in pixels."""

    resized: tuple[int, int]
    """What the image is resized to."""
    size: tuple[int, int]
    """The frame's height and width: cut out of the middle, or with padding around it."""

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the resized image at which the frame begins; below 0: in padding."""
        top, left = (int((of - side) / 2) for of, side in zip(self.resized, self.size, strict=True))
        return top, left


@dataclass(frozen=True, slots=True)
class ImageInput:
    """A model input that takes one image, and what the options say of images."""

    spec: Tensor
    preprocessing: Preprocessing
    channels: int
    """1 or 3."""
    size: tuple[int, int]
    """Height and width; the largest ones where they are open."""
    is_open: tuple[bool, bool]
    """Whether height and width are open."""

    def fit(self, image: tuple[int, int], name: str) -> Fit:
        """Return how an image of some height and width becomes a frame.

        Raises:
            JobError: the image, or what ``--size`` makes of it, does not fit the model input.
        """
        keeps, wanted = self.preprocessing.keep_size, self.preprocessing.size
        resized = image if keeps else wanted or self._scaled(image)
        height, width = (
            side if is_open else most
            for side, most, is_open in zip(resized, self.size, self.is_open, strict=True)
        )
        if (rule := self.preprocessing.resize) in ("crop", "letterbox") and not keeps:
            inner = (height, width) if rule == "letterbox" else resized
            resized = _in_proportion(image, inner, covers=rule == "crop")
        if height > self.size[0] or width > self.size[1]:
            subject = f"{name} has" if keeps else "--size gives images of"
            at_most = self.spec.at_most(self.frame_shape(resized))
            instead = "resize images (--size), or build" if keeps else "build"
            raise JobError(
                f"{subject} {_text(resized)} pixels; the bound of model input {self.spec.name!r} is"
                f" {_text(self.size)}: {instead} with a larger one ({at_most})"
            )
        is_padded = self.preprocessing.resize == "letterbox"
        if not is_padded and (resized[0] < height or resized[1] < width):
            raise JobError(
                f"images resized to {_text(resized)} are smaller than the model input,"
                f" {_text(self.size)}"
            )
        return Fit(resized, (height, width))

    def note(self, name: str, image: tuple[int, int]) -> str:
        """Return how an image of some height and width is changed; empty: it is not.

        With ``--size`` or ``--resize`` the user has chosen it, so there is nothing to note.
        """
        is_chosen = self.preprocessing.size is not None or self.preprocessing.resize is not None
        if is_chosen or self.fit(image, name).resized == image:
            return ""
        if not any(self.is_open):
            takes = f"{_text(self.size)}: images of other sizes are resized"
        elif all(self.is_open):
            takes = f"up to {_text(self.size)}: larger images are scaled down to fit"
        else:
            height, width = (
                f"up to {side}" if is_open else str(side)
                for side, is_open in zip(self.size, self.is_open, strict=True)
            )
            takes = f"{height} by {width}: images of other sizes are scaled to fit"
        return f"{name} has {_text(image)} pixels, the model takes {takes}"

    def frame_shape(self, size: tuple[int, int]) -> tuple[int, ...]:
        channels, height, width = _AXES[self.preprocessing.layout or ""]
        sizes = {0: 1, channels: self.channels, height: size[0], width: size[1]}
        return tuple(sizes[axis] for axis in range(4))

    def _scaled(self, image: tuple[int, int]) -> tuple[int, int]:
        """Return the size of an image for which the user has named none.

        Fixed sides are the model's; otherwise no image grows, and the sides stay in proportion.
        """
        factors = [most / max(1, side) for side, most in zip(image, self.size, strict=True)]
        fixed = [factors[axis] for axis in (0, 1) if not self.is_open[axis]]
        factor = min(fixed or (1.0, *factors))
        height, width = (
            min(most, max(1, round(side * factor))) if is_open else most
            for side, most, is_open in zip(image, self.size, self.is_open, strict=True)
        )
        return height, width


def _in_proportion(
    image: tuple[int, int], size: tuple[int, int], *, covers: bool
) -> tuple[int, int]:
    """Return the size of an image that covers a size, or fits into it, with sides rounded down."""
    factors = [side / max(1, of) for side, of in zip(size, image, strict=True)]
    factor = max(factors) if covers else min(factors)
    height, width = (
        side if mine == factor else max(1, int(of * factor))
        for side, of, mine in zip(size, image, factors, strict=True)
    )
    return height, width


def image_input(spec: Tensor, preprocessing: Preprocessing) -> ImageInput:
    """Return a model input as a consumer of images; a batch of open size has one image.

    Raises:
        JobError: it takes no image, or the options do not fit it.
    """
    preprocessing = preprocessing.resolved()
    symbols = spec.symbols or ("",) * len(spec.shape)
    takes_one = len(spec.shape) == 4 and (spec.shape[0] == 1 or bool(symbols[0]))
    layouts = (preprocessing.layout,) if preprocessing.layout else tuple(_AXES)
    fitting = [of for of in layouts if takes_one and spec.shape[_AXES[of][0]] in (1, 3)]
    if not fitting:
        raise JobError(
            f"model input {spec.name!r} of shape {list(spec.shape)} accepts no images in layout"
            f" {' or '.join(layouts)}; expected one image of 1 or 3 channels"
        )
    layout = min(fitting, key=lambda of: bool(symbols[_AXES[of][0]]))  # channels are not open
    preprocessing = replace(preprocessing, layout=layout)
    channels, height, width = _AXES[layout]
    if spec.storage[0].name != spec.dtype or spec.storage[0].kind not in "iuf":
        raise JobError(
            f"model input {spec.name!r} is {spec.dtype}; images feed floating point and integer"
            " inputs: give an .npz file"
        )
    size = (spec.shape[height], spec.shape[width])
    is_open = (bool(symbols[height]), bool(symbols[width]))
    takes = ImageInput(spec, preprocessing, spec.shape[channels], size, is_open)
    if preprocessing.keep_size and not all(is_open):
        raise JobError(
            f"--keep-size: model input {spec.name!r} of shape {list(spec.shape)} leaves height and"
            " width not both open, so images must be resized"
        )
    if preprocessing.size is not None:
        fit = takes.fit(preprocessing.size, "")
        if preprocessing.resize == "letterbox" and fit.size != preprocessing.size:
            raise JobError(
                f"--size {_text(preprocessing.size)}: --resize letterbox pads images to the model"
                f" input, {_text(fit.size)}: leave --size out"
            )
    if preprocessing.pad is not None and preprocessing.resize != "letterbox":
        raise JobError("--pad is given without --resize letterbox, which alone pads images")
    return takes


def input_values(pixels: NDArray[np.float32], takes: ImageInput) -> NDArray[Any]:
    """Return the values of the model input for pixels [H, W, C] of 0 to 255, in the model's order.

    Raises:
        JobError: the options have another number of channels.
    """
    import numpy as np

    options, dtype = takes.preprocessing, takes.spec.storage[0]
    step, zero_point = takes.spec.quantisation or (1.0, 0.0)
    unit = 1 / 255 if dtype.kind == "f" or takes.spec.quantisation else 1.0
    mean = _per_channel("mean", options.mean or (0.0,), takes.channels)
    scale = _per_channel("scale", options.scale or (unit,), takes.channels)
    values = (pixels - mean) * scale
    if dtype.kind == "f":
        return values
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(limits.max)
    is_unquantised_int8 = dtype == np.int8 and not takes.spec.quantisation
    ends = [step * (limit - zero_point) for limit in (low, high)]
    if options.mean or options.scale or not (is_unquantised_int8 or _is_usual(*ends)):
        values = values / step + zero_point
    else:
        values = low + pixels * ((high - low) / 255)
    rounded = np.rint(values.astype(np.float64))
    with np.errstate(invalid="ignore"):
        quantised = rounded.clip(low, high).astype(dtype)
    quantised[rounded >= high] = limits.max  # a float64 cannot hold that of 64 bits
    return quantised


def _is_usual(begin: float, end: float) -> bool:
    return any(
        max(abs(begin - low), abs(end - high)) <= _CLOSE * (high - low)
        for low, high in _USUAL_RANGES
    )


def _per_channel(name: str, values: Sequence[float], channels: int) -> NDArray[np.float32]:
    if len(values) not in (1, channels):
        raise JobError(f"{name} has {len(values)} values, expected 1 or {channels}")
    import numpy as np

    return np.asarray(values, np.float32)


def _text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
