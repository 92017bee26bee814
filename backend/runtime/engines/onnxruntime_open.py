"""Runs of an onnxruntime session whose tensors change their sizes from frame to frame."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from numpy.typing import NDArray

from ..job import Tensor
from ..sizes import OpenSlot, Slot
from .onnxruntime_package import memory_of

OPEN_SIZES = "its sizes change from frame to frame"
"""Why such a session is not bound to buffers once and for all."""

_MAX_KNOWN = 4096
"""Combinations of the inputs' shapes for which the outputs' shapes are remembered."""

_Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class OpenRuns:
    """Binds each frame's slots in the shapes of that frame.

    An output takes its slot's memory only if its shape is known before the run. onnxruntime makes
    the others, and they are copied. Where shapes follow from those of the inputs, they are known
    from an earlier frame of the same shapes. Whether they do shows at a frame of which they were
    predicted wrongly: onnxruntime refuses the memory, the frame is run again, and nothing is
    predicted any more.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        predicts: bool,
    ) -> None:
        """Take what the session reads and makes; ``predicts``: a frame may be run twice."""
        self._inputs, self._outputs = inputs, outputs
        # If all inputs are fixed, data decide the sizes of the outputs.
        self._predicts = predicts and any(spec.is_open for spec in inputs)
        self._known: dict[_Shapes, _Shapes] = {}

    def run(self, session: Any, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        shapes = tuple(values.shape for values in inputs)
        predicted = self._known.get(shapes) if self._predicts else None
        if predicted is not None:
            with suppress(Exception):  # onnxruntime's exceptions have no common base class
                self._run(session, inputs, outputs, predicted)
                return
        made = self._run(session, inputs, outputs, None)
        if predicted is not None:  # and wrongly, as the same values are no error now
            self._predicts = False
            self._known.clear()
        if self._predicts and len(self._known) < _MAX_KNOWN:
            self._known[shapes] = made

    def _run(
        self,
        session: Any,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[Slot],
        predicted: _Shapes | None,
    ) -> _Shapes:
        binding = session.io_binding()
        for spec, values in zip(self._inputs, inputs, strict=True):
            binding.bind_input(*memory_of(spec, values.ctypes.data, values.shape))
        shapes = predicted or tuple(
            () if isinstance(slot, OpenSlot) else spec.shape
            for spec, slot in zip(self._outputs, outputs, strict=True)
        )
        made: list[tuple[int, OpenSlot]] = []
        for number, (spec, slot, shape) in enumerate(
            zip(self._outputs, outputs, shapes, strict=True)
        ):
            if isinstance(slot, OpenSlot) and predicted is None:
                binding.bind_output(spec.name, "cpu")
                made.append((number, slot))
                continue
            values = slot.shaped(shape) if isinstance(slot, OpenSlot) else slot
            binding.bind_output(*memory_of(spec, values.ctypes.data, shape))
        session.run_with_iobinding(binding)
        shapes_made = list(shapes)
        values_made = binding.get_outputs() if made else ()
        for number, slot in made:
            shapes_made[number] = _copy(values_made[number], slot)
        return tuple(shapes_made)


def _copy(made: Any, slot: OpenSlot) -> tuple[int, ...]:
    shape = tuple(made.shape())
    target = slot.shaped(shape)
    ctypes.memmove(target.ctypes.data, made.data_ptr(), target.nbytes)
    return shape
