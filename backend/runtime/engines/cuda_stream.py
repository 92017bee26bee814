"""A stream of an NVIDIA GPU, and the memory that copies on it use: the driver's library by ctypes.

The driver shares contexts, streams and memory with the CUDA runtime that onnxruntime uses. Its
library has one name on all boards, whichever version of CUDA onnxruntime was built for, and can be
used before onnxruntime opens the GPU.

Source: https://docs.nvidia.com/cuda/cuda-driver-api
"""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

LIBRARY = "libcuda.so.1"

_WAITS, _WAIT_BY_SLEEPING = 7, 4
"""Of the flags of a context: those that say how to wait, CU_CTX_SCHED_BLOCKING_SYNC among them."""

_STREAM_NON_BLOCKING = 1
_REGISTER_READ_ONLY = 8

_Int, _Address, _Size, _Flags = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint
_Result = ctypes.c_void_p

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_Flags,),
    "cuGetErrorName": (_Int, _Result),
    "cuDeviceGet": (_Result, _Int),
    "cuDevicePrimaryCtxGetState": (_Int, _Result, _Result),
    "cuDevicePrimaryCtxSetFlags_v2": (_Int, _Flags),
    "cuDevicePrimaryCtxRetain": (_Result, _Int),
    "cuDevicePrimaryCtxRelease_v2": (_Int,),
    "cuCtxSetCurrent": (_Address,),
    "cuStreamCreate": (_Result, _Flags),
    "cuStreamEndCapture": (_Address, _Result),
    "cuStreamDestroy_v2": (_Address,),
    "cuStreamSynchronize": (_Address,),
    "cuMemAlloc_v2": (_Result, _Size),
    "cuMemFree_v2": (_Address,),
    "cuMemAllocHost_v2": (_Result, _Size),
    "cuMemFreeHost": (_Address,),
    "cuMemHostRegister_v2": (_Address, _Size, _Flags),
    "cuMemHostUnregister": (_Address,),
    "cuMemcpyHtoDAsync_v2": (_Address, _Address, _Size, _Address),
    "cuMemcpyDtoHAsync_v2": (_Address, _Address, _Size, _Address),
}

_registered: Counter[tuple[int, int]] = Counter()
"""Memory of this process that is page-locked, address and bytes -> how many streams use it."""


class CudaError(JobError):
    """The driver cannot be loaded, or one of its functions failed."""


class _Driver:
    """The driver's functions; each raises :class:`CudaError` unless it succeeds."""

    def __init__(self) -> None:
        try:
            # Python's lock is kept in short calls: to get it back may take milliseconds.
            libraries = ctypes.PyDLL(LIBRARY), ctypes.CDLL(LIBRARY)
            self._short, self._long = (
                {name: _declared(library, name) for name in _FUNCTIONS} for library in libraries
            )
        except (OSError, AttributeError) as error:
            raise CudaError(f"NVIDIA's driver cannot be used here: {error}") from None
        self.call_long("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns soon."""
        code = self._short[name](*arguments)
        if code:
            raise self._error(name, code)

    def call_long(self, name: str, *arguments: Any) -> None:
        """Call a function that may take long; other threads run meanwhile."""
        code = self._long[name](*arguments)
        if code:
            raise self._error(name, code)

    def returned(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint64) -> int:
        result = kind()
        self.call_long(name, ctypes.byref(result), *arguments)
        return int(result.value)

    def _error(self, name: str, code: int) -> CudaError:
        text = ctypes.c_char_p()
        self._short["cuGetErrorName"](code, ctypes.byref(text))
        reason = (text.value or b"an unknown error").decode("ascii", "replace")
        return CudaError(f"{name.partition('_')[0]}: {reason} ({code})")


def _declared(library: ctypes.CDLL, name: str) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = _FUNCTIONS[name], _Int
    return function


class CudaStream:
    """A stream of a GPU; what it allocates and page-locks lasts until it is closed.

    Addresses are numbers. Copies are only queued; all other calls wait until they are done.
    """

    def __init__(self, gpu: int, *, sleeps: bool) -> None:
        """``gpu``: as CUDA numbers them. ``sleeps``: threads that wait for it do not poll.

        Raises:
            CudaError: there is no driver or no such GPU, or it has no memory left.
        """
        self.polls = ""
        """Why threads do not sleep though they should; empty: they do as they should."""
        self._driver = _Driver()
        self._gpu = self._driver.returned("cuDeviceGet", gpu, kind=_Int)
        if sleeps:
            self.polls = self._sleep_in_waits()
        self._context = self._driver.returned("cuDevicePrimaryCtxRetain", self._gpu)
        self._resources = ExitStack()
        """Gives everything back, the last first."""
        self._resources.callback(self._give_back, "cuDevicePrimaryCtxRelease_v2", self._gpu)
        self._locked: set[tuple[int, int]] = set()
        try:
            self.make_current()
            self.handle = self._driver.returned("cuStreamCreate", _STREAM_NON_BLOCKING)
        except CudaError:
            self._resources.close()
            raise
        self._resources.callback(self._give_back, "cuStreamDestroy_v2", self.handle)

    def _sleep_in_waits(self) -> str:
        """Have threads sleep while they wait for this GPU; say why not if that cannot be.

        The flags are meant to be set before the GPU is opened first, which makes its context.
        """
        flags, is_active = _Flags(), _Int()
        state = ctypes.byref(flags), ctypes.byref(is_active)
        try:
            self._driver.call_long("cuDevicePrimaryCtxGetState", self._gpu, *state)
            if flags.value & _WAITS != _WAIT_BY_SLEEPING:
                wanted = flags.value & ~_WAITS | _WAIT_BY_SLEEPING
                self._driver.call_long("cuDevicePrimaryCtxSetFlags_v2", self._gpu, wanted)
        except CudaError as error:
            return str(error)
        return ""

    def make_current(self) -> None:
        self._driver.call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        address = self._driver.returned("cuMemAlloc_v2", max(1, size))
        self._resources.callback(self._give_back, "cuMemFree_v2", address)
        return address

    def allocate_host(self, size: int) -> NDArray[np.uint8]:
        """Return ``size`` page-locked bytes of the host."""
        address = self._driver.returned("cuMemAllocHost_v2", max(1, size))
        self._resources.callback(self._give_back, "cuMemFreeHost", address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def lock(self, array: NDArray[Any]) -> None:
        """Page-lock the memory in which an array lies, all of it at once.

        Streams of a process may lock the same memory. It must not be freed before they are closed.
        """
        while isinstance(array.base, np.ndarray):
            array = array.base
        place = array.ctypes.data, array.nbytes
        if place in self._locked:
            return
        if not _registered[place]:
            flags = 0 if array.flags.writeable else _REGISTER_READ_ONLY
            self._driver.call_long("cuMemHostRegister_v2", *place, flags)
        _registered[place] += 1
        self._locked.add(place)
        self._resources.callback(self._unlock, place)

    def copy_in(self, device: int, host: int, size: int) -> None:
        self._driver.call("cuMemcpyHtoDAsync_v2", device, host, size, self.handle)

    def copy_out(self, host: int, device: int, size: int) -> None:
        self._driver.call("cuMemcpyDtoHAsync_v2", host, device, size, self.handle)

    def wait(self) -> None:
        self._driver.call_long("cuStreamSynchronize", self.handle)

    def end_capture(self) -> None:
        """End the capture of a graph that has failed; called by the thread that began it."""
        with suppress(CudaError):
            graph = ctypes.c_void_p()
            self._driver.call_long("cuStreamEndCapture", self.handle, ctypes.byref(graph))

    def close(self) -> None:
        with suppress(CudaError):
            self.make_current()
            self.wait()
        self._resources.close()

    def _unlock(self, place: tuple[int, int]) -> None:
        self._locked.discard(place)
        _registered[place] -= 1
        if not _registered[place]:
            del _registered[place]
            self._give_back("cuMemHostUnregister", place[0])

    def _give_back(self, function: str, what: int) -> None:
        with suppress(CudaError):
            self._driver.call_long(function, what)
