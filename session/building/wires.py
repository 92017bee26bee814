"""What representative frames show of tensors that cross between boards as fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Scales, Tensor
from rankslice.framework.plan import WireConversion
from rankslice.framework.wording import on_one_line, quoted
from rankslice.frontend.formats import Model, format_of
from rankslice.measurement.verify import Difference
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.representative import (
    REPRESENTATIVE,
    frame_numbers,
    representative_source,
)
from rankslice.session.verification.unsliced_parts import values_of

if TYPE_CHECKING:
    from rankslice.frontend.rewriting.conversions import Sent

_LOWEST, _HIGHEST = -128, 127


def find_scales(model: Model, tensors: Sequence[Tensor], wanted: Quantisation) -> dict[str, Scales]:
    """Return scales for int8 by which the representative frames use all integers.

    Each channel has its own where the format can, unless the frames have nothing but zeros there:
    then it has that of the whole tensor.

    Raises:
        RankSliceError: there are no representative frames, or they cannot be computed.
    """
    if not tensors:
        return {}
    if wanted.representative is None:
        found = "int8 between boards needs the range of each tensor"
        expected = "expected frames like those that will come"
        raise RankSliceError(Mistake(REPRESENTATIVE, found, expected))
    channel_axis = format_of(model.graph).channel_axis
    axes = [channel_axis(model, tensor) for tensor in tensors]
    lows: list[Any] = [0.0] * len(tensors)
    highs: list[Any] = [0.0] * len(tensors)
    for frame in _values(model, tensors, wanted):
        for number, (values, axis) in enumerate(zip(frame, axes, strict=True)):
            others = tuple(other for other in range(values.ndim) if other != axis)
            over = others if axis is not None else None
            lows[number] = np.minimum(lows[number], values.min(axis=over, initial=0.0))
            highs[number] = np.maximum(highs[number], values.max(axis=over, initial=0.0))
    raise_mistakes(
        Mistake(
            f"{REPRESENTATIVE}: tensor {quoted(tensor.name)}",
            "a frame has values that are infinite or no numbers, and int8 has none",
            "choose float16 or bfloat16, or leave such frames out",
        )
        for tensor, low, high in zip(tensors, lows, highs, strict=True)
        if not np.isfinite([low, high]).all()
    )
    return {
        tensor.name: _scales(np.atleast_1d(low), np.atleast_1d(high), axis)
        for tensor, low, high, axis in zip(tensors, lows, highs, axes, strict=True)
    }


def _scales(low: NDArray[Any], high: NDArray[Any], axis: int | None) -> Scales:
    low, high = low.astype(np.float64), high.astype(np.float64)  # their difference can be large
    is_empty = low == high
    low, high = np.where(is_empty, low.min(), low), np.where(is_empty, high.max(), high)
    steps = ((high - low) / (_HIGHEST - _LOWEST)).astype(np.float32)
    scales = np.where(steps > 0, steps, np.float32(1))
    zeros = np.clip(np.rint(_LOWEST - low / scales), _LOWEST, _HIGHEST).astype(int)
    return Scales(tuple(scales.tolist()), tuple(zeros.tolist()), axis)


def conversions_of(
    model: Model, sent: Sequence[Sent], wanted: Quantisation
) -> tuple[WireConversion, ...]:
    """Return what is converted, with the errors in the representative frames, if there are any.

    Args:
        model: without the conversions.

    Raises:
        RankSliceError: frames cannot be computed, or a value is too large for float16.
    """
    differences = [Difference() for _ in sent]
    tensors = [one.tensor for one in sent]
    frames = _values(model, tensors, wanted) if wanted.representative else ()
    for number, frame in enumerate(frames):
        for difference, values, one in zip(differences, frame, sent, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                read = through_wire(values, one.sent.dtype, one.scales)
            is_finite = np.isfinite(values)
            difference.add(number, values[is_finite], read[is_finite])
    raise_mistakes(
        Mistake(
            f"{REPRESENTATIVE}: tensor {quoted(one.tensor.name)}",
            f"a frame has values beyond {one.sent.dtype}",
            "leave float32"
            if one.sent.dtype == "bfloat16"
            else "choose bfloat16, which has the range of float32",
        )
        for one, difference in zip(sent, differences, strict=True)
        if not np.isfinite(difference.absolute)
    )
    measured = ((d.absolute, d.high - d.low) if d.low <= d.high else () for d in differences)
    return tuple(
        WireConversion(one.tensor.name, one.sent.name, one.sent.dtype, *figures)
        for one, figures in zip(sent, measured, strict=True)
    )


def through_wire(
    values: NDArray[np.float32], dtype: str, scales: Scales | None
) -> NDArray[np.float32]:
    """Return what the reader of a tensor gets; values are rounded to the nearest, ties to even."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
        return (rounded & np.uint32(0xFFFF0000)).view(np.float32).reshape(values.shape)
    scales = scales or Scales()
    shape = [1] * values.ndim
    if scales.axis is not None:
        shape[scales.axis] = -1
    scale = np.asarray(scales.scales, np.float32).reshape(shape)
    zero = np.asarray(scales.zero_points, np.float32).reshape(shape)
    integers = np.clip(np.rint(values / scale) + zero, _LOWEST, _HIGHEST)
    return np.asarray((integers - zero) * scale, np.float32)


def _values(
    model: Model, tensors: Sequence[Tensor], wanted: Quantisation
) -> Iterator[list[NDArray[np.float32]]]:
    """Yield tensors of the unsliced model, frame by frame."""
    specs = [tensor.in_job() for tensor in model.graph.inputs]
    count = 0
    try:
        with closing(representative_source(wanted, specs)) as source:
            for frame in values_of(model, tensors, source, frame_numbers(source)):
                count += 1
                yield frame
    except JobError as error:
        raise RankSliceError(Mistake(REPRESENTATIVE, on_one_line(str(error)))) from None
    if not count:
        raise RankSliceError(Mistake(REPRESENTATIVE, f"{wanted.representative} has no frames"))
