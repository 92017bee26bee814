"""Pixels of 0 to 255 made into values of a model input, by its type.

The table in docs/command-line.md, "Where frames come from", has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .image_sizes import ImageInput

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

    options, dtype = takes.preprocessing, takes.spec.storage[0]
    step, zero_point = takes.spec.quantisation or (1.0, 0.0)
    unit = 1 / 255 if dtype.kind == "f" or takes.spec.quantisation else 1.0
    mean = _per_channel("mean", options.mean or (0.0,), takes.channels)
    scale = _per_channel("scale", options.scale or (unit,), takes.channels)
    values = (pixels - mean) * scale
    if dtype.kind == "f":
        return values
    limits = np.iinfo(dtype)
    least, most = float(limits.min), float(limits.max)
    is_unquantised_int8 = dtype == np.int8 and not takes.spec.quantisation
    ends = [step * (limit - zero_point) for limit in (least, most)]
    if options.mean or options.scale or not (is_unquantised_int8 or _is_usual(*ends)):
        values = values / step + zero_point
    else:
        values = least + pixels * ((most - least) / 255)
    rounded = np.rint(values.astype(np.float64))
    with np.errstate(invalid="ignore"):
        found = rounded.clip(least, most).astype(dtype)
    found[rounded >= most] = limits.max  # a float64 cannot hold that of 64 bits
    return found


def _is_usual(begin: float, end: float) -> bool:
    """Return whether real values of a quantised type have a usual range."""
    return any(
        max(abs(begin - low), abs(end - high)) <= _CLOSE * (high - low)
        for low, high in _USUAL_RANGES
    )


def _per_channel(name: str, values: Sequence[float], channels: int) -> NDArray[np.float32]:
    if len(values) not in (1, channels):
        raise JobError(f"{name} has {len(values)} values, expected 1 or {channels}")
    import numpy as np

    return np.asarray(values, np.float32)
