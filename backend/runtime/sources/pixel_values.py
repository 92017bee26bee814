"""Pixels of 0 to 255 made into values of a model input.

The values are ``(pixel - mean) * scale``. A quantised input gets the number that stands for this
value. Integers are rounded, and those beyond the type's range become the nearest of its limits.

Without ``--mean`` and ``--scale``, floating point inputs get pixels / 255. Integers get the pixels
as they are, int8 less 128. So does a quantised input whose type covers a usual range of trained
models: black is its least value, white its largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .image_sizes import ImageInput

_UNIT = 1 / 255
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""Of the values that models are trained on."""
_CLOSE = 0.02
"""So much of a range may the limits of a quantised type differ from it."""


def input_values(pixels: NDArray[np.float32], takes: ImageInput) -> NDArray[Any]:
    """Return the values of the model input for pixels [H, W, C] of 0 to 255.

    Raises:
        JobError: the options have another number of channels.
    """
    import numpy as np

    spec, options = takes.spec, takes.preprocessing
    dtype, _ = spec.storage
    mean = _per_channel("mean", options.mean or (0.0,), takes.channels)
    if dtype.kind == "f":
        return (pixels - mean) * _per_channel("scale", options.scale or (_UNIT,), takes.channels)
    limits = np.iinfo(dtype)
    least, span = float(limits.min), float(limits.max) - float(limits.min)
    is_usual = not options.mean and not options.scale
    if is_usual and spec.quantisation and _is_usual_range(spec.quantisation, least, span):
        return _integers(least + pixels * (span / 255), dtype)
    if is_usual and not spec.quantisation:
        return _integers(pixels - (128 if dtype == np.int8 else 0), dtype)
    unit = (_UNIT,) if spec.quantisation else (1.0,)
    step, zero_point = spec.quantisation or (1.0, 0.0)
    scale = _per_channel("scale", options.scale or unit, takes.channels)
    return _integers((pixels - mean) * scale / step + zero_point, dtype)


def _is_usual_range(quantisation: Sequence[float], least: float, span: float) -> bool:
    """Return whether the limits of a quantised type stand for a usual range."""
    step, zero_point = quantisation
    begin, width = step * (least - zero_point), step * span
    return any(
        max(abs(begin - low), abs(begin + width - high)) <= _CLOSE * (high - low)
        for low, high in _USUAL_RANGES
    )


def _integers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values rounded, and within the limits of an integer type."""
    import numpy as np

    limits = np.iinfo(dtype)
    rounded = np.rint(values.astype(np.float64))
    with np.errstate(invalid="ignore"):
        found = rounded.clip(limits.min, limits.max).astype(dtype)
    found[rounded >= limits.max] = limits.max  # a float64 cannot hold that of 64 bits
    return found


def _per_channel(name: str, values: Sequence[float], channels: int) -> NDArray[np.float32]:
    if len(values) not in (1, channels):
        raise JobError(f"{name} has {len(values)} values, expected 1 or {channels}")
    import numpy as np

    return np.asarray(values, np.float32)
