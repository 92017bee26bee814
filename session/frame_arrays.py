"""A frame that a program gives, checked against the plan before it travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sizes import differing_size
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.wording import joined, listed, quoted

Frame: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"


def arrays_of(frame: Frame, inputs: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Return the arrays of a frame by input: contiguous copies.

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
    arrays = [_array(spec, by_name[spec.name]) for spec in inputs]
    pairs = list(zip(inputs, arrays, strict=True))
    raise_mistakes(
        Mistake(f"input {quoted(spec.name)}", found, expected)
        for spec, values in pairs
        for found, expected in _mistakes(spec, values)
    )
    if found := differing_size((spec, values.shape) for spec, values in pairs):
        raise RankSliceError(Mistake("frame", found))
    return [np.array(values, order="C") for values in arrays]


def _array(spec: Tensor, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise RankSliceError(
            Mistake(f"input {quoted(spec.name)}", f"is not an array: {error}")
        ) from None


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
