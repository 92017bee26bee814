"""How frames come to onnxruntime's CUDA provider and back: buffers on the GPU, copies, a graph.

The inputs and outputs of a sub-model have one buffer each on the GPU, bound once. A frame is queued
as a whole on one stream, its copies in, the run and its copies out, and then waited for once. As
the buffers stay where they are, the run can be a CUDA graph, whichever slots the frame has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..job import Tensor, typed_view
from . import truth
from .cuda_stream import CudaError, CudaStream
from .onnxruntime_package import memory_of

BUFFERS, GRAPH = "device buffers", "CUDA graph"
PINNED, BLOCKING = "pinned slots", "blocking sync"

_OPTIONS = {
    BUFFERS: "device_buffers",
    GRAPH: "enable_cuda_graph",
    PINNED: "pinned_slots",
    BLOCKING: "blocking_sync",
}
"""What may be used -> the option of the platform file that says whether it is."""

_NEEDS_BUFFERS = (GRAPH, PINNED)

_NO_SYNC = "disable_synchronize_execution_providers"
"""Option of a run: it returns before the GPU is done."""

_MIN_LOCKED = 1 << 16
"""Bytes of a tensor whose slots are page-locked. Smaller ones, which may share pages with other
memory, are copied to memory that is in a few microseconds."""

_MAX_SLOTS = 4096
"""Slots remembered for each tensor: more than any ring has."""


class _Slot(NamedTuple):
    array: NDArray[Any]
    """Itself: so it stays what and where it is."""
    address: int
    """Of page-locked memory."""
    staging: NDArray[Any] | None
    """What lies there, if it is not the slot's own memory."""


class CudaFrames:
    """Frames of one session; what does not work here is left out, and the reason kept.

    A graph belongs to the thread that captured it, in the first run there.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self.without: dict[str, str] = {}
        for name, option in _OPTIONS.items():
            value = self._options.pop(option, "1")
            if not truth("onnxruntime", option, value):
                self.leave_out(name, f"the platform file has {option}: {value}")
        self._stream: CudaStream | None = None
        self._inputs: Sequence[_Tensor] = ()
        self._outputs: Sequence[_Tensor] = ()
        self._compute: Callable[[], None] | None = None
        self._thread: int | None = None
        """The thread that ran the session last."""

    def leave_out(self, name: str, reason: str) -> None:
        for left_out in (name, *(_NEEDS_BUFFERS if name == BUFFERS else ())):
            self.without.setdefault(left_out, reason)

    def give_up(self, reason: str) -> bool:
        """Leave out the next thing that a session may refuse; return whether there was one."""
        for name in (GRAPH, BUFFERS):
            if self.has(name):
                self.leave_out(name, reason)
                return True
        return False

    def has(self, name: str) -> bool:
        return name not in self.without

    def uses(self) -> tuple[str, ...]:
        return tuple(name for name in _OPTIONS if self.has(name))

    def open(self) -> None:
        """Open the GPU: before onnxruntime does, so that it can be told how threads wait."""
        if not self.has(BUFFERS) and not self.has(BLOCKING):
            return
        try:
            gpu = int(self._options.get("device_id", "0"))
            self._stream = CudaStream(gpu, sleeps=self.has(BLOCKING))
            reason = self._stream.polls
        except (CudaError, ValueError) as error:
            reason = str(error)
            self.leave_out(BUFFERS, reason)
        if reason:
            self.leave_out(BLOCKING, reason)

    def session_options(self) -> dict[str, str]:
        options = dict(self._options)
        if self.has(BUFFERS) and self._stream is not None:
            options["user_compute_stream"] = str(self._stream.handle)
        if self.has(GRAPH):
            options["enable_cuda_graph"] = "1"
        return options

    def bind(
        self,
        onnxruntime: Any,
        session: Any,
        reads: Sequence[Tensor],
        makes: Sequence[Tensor],
    ) -> None:
        """Bind the inputs and outputs of a session, which has this object's options.

        Raises:
            CudaError: the GPU has too little memory.
        """
        assert self._stream is not None
        stream, gpu = self._stream, int(self._options.get("device_id", "0"))
        self._inputs, self._outputs = (
            [_Tensor(spec, stream, self.has(PINNED)) for spec in side] for side in (reads, makes)
        )
        binding = session.io_binding()
        for tensor in self._inputs:
            binding.bind_input(*memory_of(tensor.spec, tensor.address, device="cuda", of=gpu))
        for tensor in self._outputs:
            binding.bind_output(*memory_of(tensor.spec, tensor.address, device="cuda", of=gpu))
        options = onnxruntime.RunOptions()
        options.add_run_config_entry(_NO_SYNC, "1")
        self._compute = partial(session.run_with_iobinding, binding, options)

    @property
    def is_bound(self) -> bool:
        return self._compute is not None

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> str:
        """Do a frame; return why the graph could not be captured, so that there is no result."""
        assert self._stream is not None
        thread = threading.get_ident()
        captures = self.has(GRAPH) and self._thread != thread
        try:
            self._pass_frame(self._stream, inputs, outputs)
        except Exception as error:  # onnxruntime's exceptions have no common base class
            if not captures:
                raise
            self._stream.end_capture()
            return " ".join(str(error).split()) or type(error).__name__
        self._thread = thread
        for tensor in (*self._inputs, *self._outputs):
            if tensor.not_pinned:
                self.leave_out(PINNED, f"{tensor.spec.name}: {tensor.not_pinned}")
        return ""

    def _pass_frame(
        self,
        stream: CudaStream,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
    ) -> None:
        assert self._compute is not None
        stream.make_current()
        for tensor, array in zip(self._inputs, inputs, strict=True):
            slot = tensor.slot(array)
            if slot.staging is not None:
                np.copyto(slot.staging, array)
            if tensor.size:
                stream.copy_in(tensor.address, slot.address, tensor.size)
        self._compute()
        made = [tensor.slot(array) for tensor, array in zip(self._outputs, outputs, strict=True)]
        for tensor, slot in zip(self._outputs, made, strict=True):
            if tensor.size:
                stream.copy_out(slot.address, tensor.address, tensor.size)
        stream.wait()
        for slot in made:
            if slot.staging is not None:
                np.copyto(slot.array, slot.staging)

    def close(self) -> None:
        """Give the GPU back; the session must be closed before."""
        self._inputs = self._outputs = ()
        self._compute = self._thread = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Tensor:
    def __init__(self, spec: Tensor, stream: CudaStream, is_pinned: bool) -> None:
        self.spec = spec
        self.size = spec.nbytes
        self.address = stream.allocate(self.size)
        self.not_pinned = ""
        self._stream = stream
        self._is_pinned = is_pinned and self.size >= _MIN_LOCKED
        self._slots: dict[int, _Slot] = {}
        self._staging: NDArray[Any] | None = None

    def slot(self, array: NDArray[Any]) -> _Slot:
        slot = self._slots.get(id(array))
        if slot is None:
            if len(self._slots) >= _MAX_SLOTS:
                return self._staged(array)
            slot = self._slots[id(array)] = self._pinned(array) or self._staged(array)
        return slot

    def _pinned(self, array: NDArray[Any]) -> _Slot | None:
        if not self._is_pinned:
            return None
        try:
            self._stream.lock(array)
        except CudaError as error:
            self.not_pinned = str(error)
            return None
        return _Slot(array, array.ctypes.data, None)

    def _staged(self, array: NDArray[Any]) -> _Slot:
        """Let a slot that is not page-locked be copied to memory that is, or from there."""
        if self._staging is None:
            self._staging = typed_view(self.spec, self._stream.allocate_host(self.size))
        return _Slot(array, self._staging.ctypes.data, self._staging)
