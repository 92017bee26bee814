"""The kernels of a LiteRT model, timed by the profiler of LiteRT's C library.

LiteRT's Python packages have no profiler. The C library has one for compiled models, so the model
is compiled for the CPU a second time, through ``ctypes``, with XNNPACK as the interpreter uses it.
Foreign calls release the GIL, unlike compiled models in Python.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..sizes import private_memory
from . import FileTensor
from .litert_package import file_of_package

LIBRARY = "libLiteRt.so"
_CPU = 1
"""``kLiteRtHwAcceleratorCpu``"""
_ELEMENT_TYPES = {
    "float32": 1,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "bool": 6,
    "int16": 7,
    "complex64": 8,
    "int8": 9,
    "float16": 10,
    "float64": 11,
    "complex128": 12,
    "uint64": 13,
    "uint32": 16,
    "uint16": 17,
}
"""numpy's name of a type -> LiteRT's ``LiteRtElementType``."""

_RUN = "LiteRT::Run[buffer registration]"
_INVOKE = "Invoke"
_OPERATOR, _DELEGATES_OPERATOR, _OPERATOR_OF_DELEGATE = 2, 4, 8
"""Types of events: an operator of LiteRT's own, and two for those of a delegate."""


class _Memory(ctypes.Structure):
    _fields_ = (("allocated", c_size_t), ("in_use", c_size_t), ("private", c_size_t))


class _Event(ctypes.Structure):
    _fields_ = (
        *(("tag", c_char_p), ("kind", c_int), ("begin_us", c_uint64), ("duration_us", c_uint64)),
        *(("memory_before", _Memory), ("memory_after", _Memory)),
        *(("number", c_uint64), ("further", c_uint64), ("source", c_int)),
    )


class _Layout(ctypes.Structure):
    _fields_ = (
        *(("rank", c_uint, 7), ("has_strides", c_uint, 1)),
        *(("sizes", ctypes.c_int32 * 8), ("strides", ctypes.c_uint32 * 8)),
    )


class _TensorType(ctypes.Structure):
    _fields_ = (("element", c_int), ("layout", _Layout))


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    duration_us: int
    begin_us: int | None
    """On the clock of ``time.monotonic``; ``None``: only the duration is known, and the order."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """The kernels of one run, in the order in which they ran."""

    begin_us: int
    duration_us: int
    kernels: tuple[Kernel, ...]


class ProfiledModel:
    """A model compiled for CPU cores, with LiteRT's profiler on from the first run."""

    def __init__(
        self,
        path: Path,
        threads: int,
        inputs: Sequence[FileTensor],
        outputs: Sequence[FileTensor],
    ) -> None:
        """Compile a model whose tensors have these fixed shapes.

        Raises:
            JobError: the library lacks a function, or cannot compile the model.
        """
        self._library = _load()
        self._resources = ExitStack()
        try:
            self._model, signature = self._compile(path, threads)
            self._arrays: dict[int, NDArray[Any]] = {}
            self._inputs = self._buffers(self._names(signature, "Input"), inputs, resize=True)
            self._outputs = self._buffers(self._names(signature, "Output"), outputs)
            self._profiler = self._made("LiteRtCompiledModelGetProfiler", self._model)
            self._call("LiteRtStartProfiler", self._profiler)
        except JobError:
            self.close()
            raise

    @property
    def arrays(self) -> Mapping[int, NDArray[Any]]:
        """Memory of inputs and outputs, by the tensor's number in the file."""
        return self._arrays

    def _compile(self, path: Path, threads: int) -> tuple[c_void_p, c_void_p]:
        environment = self._made("LiteRtCreateEnvironment", c_int(0), None)
        self._later("LiteRtDestroyEnvironment", environment)
        model = self._made("LiteRtCreateModelFromFile", environment, str(path).encode())
        self._later("LiteRtDestroyModel", model)
        options = self._made("LiteRtCreateOptions")
        self._later("LiteRtDestroyOptions", options)
        self._call("LiteRtSetOptionsHardwareAccelerators", options, c_int(_CPU))
        self._add(options, b"runtime_options_string", b"enable_profiling = true\n")
        self._add(options, b"xnnpack", b"num_threads = %d\n" % threads)
        compiled = self._made("LiteRtCreateCompiledModel", environment, model, options)
        self._later("LiteRtDestroyCompiledModel", compiled)
        return compiled, self._made("LiteRtGetModelSignature", model, c_size_t(0))

    def _add(self, options: c_void_p, kind: bytes, text: bytes) -> None:
        """Add options in TOML's form; the library frees the copy of the text."""
        c = ctypes.CDLL(None)
        c.strdup.restype = c_void_p
        free = ctypes.cast(c.free, c_void_p)
        made = self._made("LiteRtCreateOpaqueOptions", kind, c_void_p(c.strdup(text)), free)
        self._call("LiteRtAddOpaqueOptions", options, made)

    def _names(self, signature: c_void_p, side: str) -> list[str]:
        count = c_size_t()
        self._call(f"LiteRtGetNumSignature{side}s", signature, byref(count))
        names = [c_char_p() for _ in range(count.value)]
        for place, name in enumerate(names):
            get = f"LiteRtGetSignature{side}Name"
            self._call(get, signature, c_size_t(place), byref(name))
        return [(name.value or b"").decode(errors="replace") for name in names]

    def _buffers(
        self, names: Sequence[str], tensors: Sequence[FileTensor], *, resize: bool = False
    ) -> Any:
        """Buffers in the signature's order, which may be another than the file's."""
        by_name = {name: tensor for tensor in tensors for name in (tensor.name, tensor.alias)}
        handles = []
        for place, name in enumerate(names):
            if name not in by_name:
                raise JobError(f"LiteRT's profiler cannot be used: which tensor is {name!r}?")
            tensor = by_name[name]
            shape = tensor.shape or ()
            if resize:
                self._resize(place, shape)
            dtype = np.dtype(tensor.dtype)
            size = dtype.itemsize * math.prod(shape)
            array = private_memory(size).view(dtype).reshape(shape)
            kind = _TensorType(_ELEMENT_TYPES[tensor.dtype])
            kind.layout.rank = len(shape)
            kind.layout.sizes[: len(shape)] = shape
            memory = c_void_p(array.ctypes.data), c_size_t(size)
            create = "LiteRtCreateTensorBufferFromHostMemory"
            handles.append(self._made(create, byref(kind), *memory, None))
            self._later("LiteRtDestroyTensorBuffer", handles[-1])
            self._arrays[tensor.number] = array
        return (c_void_p * len(handles))(*handles)

    def _resize(self, place: int, shape: tuple[int, ...]) -> None:
        layout, at = _Layout(), (self._model, c_size_t(0), c_size_t(place))
        self._call("LiteRtGetCompiledModelInputTensorLayout", *at, byref(layout))
        if tuple(layout.sizes[: layout.rank]) != shape:
            sizes = (c_int * len(shape))(*shape)
            self._call("LiteRtCompiledModelResizeInputTensor", *at, sizes, c_size_t(len(shape)))

    def run(self) -> None:
        inputs, outputs = self._inputs, self._outputs
        self._call(
            "LiteRtRunCompiledModel",
            *(self._model, c_size_t(0)),
            *(c_size_t(len(inputs)), inputs, c_size_t(len(outputs)), outputs),
        )

    def runs(self) -> list[KernelRun]:
        """The runs so far, as far as the profiler's buffer of half a million events has them."""
        self._call("LiteRtStopProfiler", self._profiler)
        count = c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, byref(count))
        events = (_Event * count.value)()
        if count.value:  # none are an error
            self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return _runs_of(events)

    def close(self) -> None:
        self._resources.close()

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None or (status := function(*arguments)):
            problem = f"{name} returns {status}" if function else f"it has no {name}"
            raise JobError(f"LiteRT's profiler cannot be used: {problem}")

    def _made(self, name: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self._call(name, *arguments, byref(made))
        return made

    def _later(self, name: str, handle: c_void_p) -> None:
        self._resources.callback(getattr(self._library, name), handle)


def _load() -> ctypes.CDLL:
    path = file_of_package(LIBRARY)
    if path is None:
        raise JobError(f"LiteRT's profiler is not there: ai-edge-litert has no {LIBRARY}")
    try:
        library = ctypes.CDLL(str(path))
        library.LiteRtGetProfilerEvents.argtypes = (c_void_p, c_int, POINTER(_Event))
    except (OSError, AttributeError) as error:
        raise JobError(f"LiteRT's profiler cannot be used: {error}") from None
    return library


def _runs_of(events: Iterable[Any]) -> list[KernelRun]:
    """Group events by run; what precedes the first whole run is left out."""
    runs: list[KernelRun] = []
    invoke: tuple[int, int] | None = None
    kernels: list[Kernel] = []
    is_inside = False

    def end_run() -> None:
        if is_inside and invoke is not None:
            runs.append(KernelRun(*invoke, tuple(kernels)))

    for event in events:
        name = event.tag.decode(errors="replace")
        if name == _RUN:
            end_run()
            invoke, kernels, is_inside = None, [], True
        elif name == _INVOKE and event.begin_us and invoke is None:
            invoke = event.begin_us, event.duration_us
        elif event.kind in (_OPERATOR, _DELEGATES_OPERATOR, _OPERATOR_OF_DELEGATE):
            kernels.append(Kernel(name, event.duration_us, event.begin_us or None))
    end_run()
    return runs
