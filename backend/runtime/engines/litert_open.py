"""Runs of LiteRT's interpreter on tensors whose sizes change from frame to frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FrameError, JobError, is_of_memory
from ..sizes import OpenSlot, Slot
from .litert_package import first_line

_ERRORS = (ValueError, RuntimeError)

_Shapes = tuple[tuple[int, ...], ...]


class OpenRuns:
    """Runs frames on one interpreter, which gets new sizes when a frame has others than the last.

    XNNPACK does not take tensors without elements: it fails, or gives them random sizes. So frames
    with such inputs, and those in which WHERE finds nothing, run on a second interpreter without
    it, which is made when it is needed first.
    """

    def __init__(
        self,
        interpreter: Any,
        make: Callable[[bool], Any],
        sides: tuple[Sequence[int], Sequence[int]],
        row_lists: Sequence[int],
        *,
        repeats: bool,
    ) -> None:
        """Take an interpreter, and what makes others (``True``: without XNNPACK).

        Args:
            sides: its numbers of inputs and outputs, in the job's order.
            row_lists: those of the results of WHERE, with a row for each element that was found.
            repeats: a frame may be run twice, and by interpreters in turn.
        """
        self._make, self._row_lists, self._repeats = make, row_lists, repeats
        self._inputs, self._outputs = sides
        self._usual: _SizedInterpreter | None = _SizedInterpreter(interpreter, self._inputs)
        self._plain: _SizedInterpreter | None = None

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        used = self._computed(inputs)
        for number, slot in zip(self._outputs, outputs, strict=True):
            copy_output(used.values(number), slot)

    def _computed(self, inputs: Sequence[NDArray[Any]]) -> _SizedInterpreter:
        if not self._repeats or all(values.size for values in inputs):
            try:
                self._usual = self._usual or self._sized(plain=False)
                self._usual.run(inputs)
                if not self._repeats or all(self._usual.values(n).size for n in self._row_lists):
                    return self._usual
            except _ERRORS as error:
                # Some of its tensors may have the sizes of another frame.
                self._usual = None
                if not self._repeats:
                    raise JobError(_failed(inputs, error)) from None
        try:
            self._plain = self._plain or self._sized(plain=True)
            self._plain.run(inputs)
        except _ERRORS as error:
            self._plain = None
            kind = FrameError if self._repeats and not is_of_memory(error) else JobError
            raise kind(_failed(inputs, error)) from None
        return self._plain

    def _sized(self, *, plain: bool) -> _SizedInterpreter:
        return _SizedInterpreter(self._make(plain), self._inputs)


class _SizedInterpreter:
    """An interpreter with the sizes of the frame that it ran last."""

    def __init__(self, interpreter: Any, inputs: Sequence[int]) -> None:
        self._interpreter, self._inputs = interpreter, inputs
        details = {item["index"]: item["shape"] for item in interpreter.get_input_details()}
        self._shapes: _Shapes = tuple(tuple(details[number].tolist()) for number in inputs)
        self._has_memory = False

    def run(self, inputs: Sequence[NDArray[Any]]) -> None:
        shapes = tuple(values.shape for values in inputs)
        if shapes != self._shapes or not self._has_memory:
            for number, old, new in zip(self._inputs, self._shapes, shapes, strict=True):
                if old != new:
                    self._interpreter.resize_tensor_input(number, new)
            self._interpreter.allocate_tensors()
            self._shapes, self._has_memory = shapes, True
        for number, values in zip(self._inputs, inputs, strict=True):
            fill_input(self._interpreter, number, values)
        self._interpreter.invoke()

    def values(self, number: int) -> NDArray[Any]:
        """Return a view of a tensor; while it lives, the sizes cannot change."""
        try:
            return np.asarray(self._interpreter.tensor(number)())
        except ValueError:
            # It refuses what WHERE makes where it finds nothing.
            details = {item["index"]: item for item in self._interpreter.get_tensor_details()}
            if 0 in (shape := tuple(details[number]["shape"].tolist())):
                return np.empty(shape, details[number]["dtype"])
            raise


def fill_input(interpreter: Any, number: int, values: NDArray[Any]) -> None:
    if values.shape:
        np.copyto(interpreter.tensor(number)(), values, casting="no")
    else:
        # An accessor gives the number itself, not the memory.
        interpreter.set_tensor(number, values)


def copy_output(values: NDArray[Any], slot: Slot) -> None:
    if isinstance(slot, OpenSlot):
        slot.write(values)
        return
    if values.shape != slot.shape:
        raise JobError(
            f"an output has the shape {list(values.shape)} now, the job says {list(slot.shape)}"
        )
    np.copyto(slot, values, casting="no")


def _failed(inputs: Sequence[NDArray[Any]], error: Exception) -> str:
    shapes = ", ".join(str(list(values.shape)) for values in inputs)
    return f"LiteRT cannot work on inputs of the shapes {shapes}: {first_line(error)}"
