"""LiteRT's interpreter with its operators timed: each frame runs on a compiled model in its place.

LiteRT's Python packages have no profiler. The C library has one for compiled models, so the model
is compiled for the CPU a second time, through ``ctypes``, with XNNPACK as the interpreter uses it.
Foreign calls release the GIL, unlike compiled models in Python.

The profiler gives XNNPACK's kernels by duration and order, and operators that XNNPACK leaves by
begin, too. Here they get places in time, and the operators of the file that they compute.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..figures.operator_profile import DeviceRuns, OperatorSpans, shapes_text
from ..job import Tensor
from ..job.records import VARIABLES
from ..sizes import Slot, private_memory
from . import FileTensor
from .litert_interpreter import InterpreterEngine, copy_output
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

_XNNPACK = "XNNPACK"
_RAN_ON = "a compiled model of LiteRT"
_PRODUCT = "Convolution"
_IS_PRODUCT = ("Fully Connected", "Dynamic Fully Connected", _PRODUCT)
"""Kernels of convolutions and matrix products: convolutions of 1 x 1 become products."""
_MADE_BY = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _PRODUCT),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), "Static Reshape"),
    **dict.fromkeys(("PAD", "PADV2"), "Constant Pad"),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), "Convert"),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"), "Clamp"),
    **dict.fromkeys(("STRIDED_SLICE", "SPLIT"), "Slice"),
    "SUB": "Subtract",
    "MUL": "Multiply",
    "DIV": "Divide",
    "NEG": "Negate",
    "CEIL": "Ceiling",
    "MAX_POOL_2D": "Max Pooling",
    "AVERAGE_POOL_2D": "Average Pooling",
    "TRANSPOSE_CONV": "Deconvolution",
    "BATCH_MATMUL": "Batch Matrix Multiply",
    "LOGISTIC": "Sigmoid",
    "CONCATENATION": "Copy",
    "SQRT": "Square Root",
    "RSQRT": "Reciprocal Square Root",
}
"""Operator of TensorFlow Lite -> XNNPACK's name of what computes it, where that is another word."""


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


@dataclass(frozen=True, slots=True)
class Operator:
    kind: str
    name: str
    """Of its first output."""
    shapes: str
    """``1x8x8x1, 24x3x3x1 -> 1x8x8x24``"""


@dataclass(frozen=True, slots=True)
class PlacedKernel:
    name: str
    operator: int
    """Its place among those of the file; -1: unknown."""
    begin_ns: int
    duration_ns: int


class ProfiledEngine(InterpreterEngine):
    """An interpreter that leaves runs to a compiled model where LiteRT can profile that.

    Models with open sizes or with variables run on the interpreter, unprofiled.
    """

    _profiled: ProfiledModel | None = None

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        super().load(path, inputs, outputs)
        is_open = any(spec.is_open for spec in (*inputs, *outputs)) or self._row_lists()
        if is_open or self._settings.facts.keeps == VARIABLES:
            return
        sides = self._tensors("input", "shape"), self._tensors("output", "shape")
        with contextlib.suppress(JobError):  # then the engine reports no operators
            self._profiled = ProfiledModel(path, self._settings.threads, *sides)

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        if self._profiled is None:
            super().run(inputs, outputs)
            return
        arrays = self._profiled.arrays
        for number, values in zip(self._inputs, inputs, strict=True):
            np.copyto(arrays[number], values, casting="no")
        self._profiled.run()
        for number, target in zip(self._outputs, outputs, strict=True):
            copy_output(arrays[number], target)

    def operators(self) -> OperatorSpans | None:
        if self._profiled is None:
            return None
        return spans_of(self._profiled.runs(), self._operators())

    def _operators(self) -> list[Operator]:
        tensors = {int(item["index"]): item for item in self._interpreter.get_tensor_details()}

        def shapes(numbers: Sequence[int]) -> list[Sequence[int]]:
            return [tensors[int(n)]["shape"] for n in numbers if int(n) in tensors]

        return [
            Operator(
                node["op_name"],
                str(tensors.get(int(node["outputs"][0]), {}).get("name", "")),
                shapes_text(shapes(node["inputs"]), shapes(node["outputs"])),
            )
            for node in self._nodes() or ()
            if node["op_name"] != "DELEGATE" and len(node["outputs"])
        ]

    def close(self) -> None:
        if self._profiled is not None:
            self._profiled.close()
            self._profiled = None
        super().close()


def spans_of(runs: Sequence[KernelRun], operators: Sequence[Operator]) -> OperatorSpans:
    """Return when operators and kernels ran, in the order of the runs.

    A kernel of which only the duration is known follows the one before it; what is left of the time
    until the next known begin lies before and behind them in equal parts.
    """
    known: dict[tuple[str, ...], list[int]] = {}
    names: dict[tuple[str, str, str], int] = {}
    kernel_names: dict[str, int] = {}
    spans, device, slack_ns = [], [], []
    for run in runs:
        flat = _outermost(run.kernels)
        tags = tuple(kernel.name for kernel in flat)
        if tags not in known:
            known[tags] = operators_of(tags, [operator.kind for operator in operators])
        placed = _placed(run, flat, known[tags])
        device.append(
            tuple(
                (kernel_names.setdefault(kernel.name, len(kernel_names)), kernel.begin_ns, ns)
                for kernel in placed
                if (ns := kernel.duration_ns)
            )
        )
        taken = sum(kernel.duration_ns for kernel in placed)
        slack_ns.append(max(0, 1000 * run.duration_us - taken))
        for place, group in groupby(placed, key=lambda kernel: kernel.operator):
            kernels = list(group)
            key = _entry(operators[place] if place >= 0 else None, kernels)
            duration = sum(kernel.duration_ns for kernel in kernels)
            number = names.setdefault(key, len(names))
            spans.append((number, kernels[0].begin_ns // 1000, duration // 1000))
    return OperatorSpans(
        names=tuple(name for name, _, _ in names),
        spans=tuple(spans),
        runs=tuple((run.begin_us, run.duration_us) for run in runs),
        device=DeviceRuns(_XNNPACK, False, tuple(kernel_names), tuple(device), tuple(slack_ns)),
        shapes=tuple(shapes for _, shapes, _ in names),
        kernels=tuple(kernels for _, _, kernels in names),
        ran_on=_RAN_ON,
    )


def _entry(operator: Operator | None, kernels: Sequence[PlacedKernel]) -> tuple[str, str, str]:
    """Name, shapes and kernels of one row."""
    ran = " + ".join(dict.fromkeys(kernel.name for kernel in kernels))
    if operator is None:
        return ran, "", ran
    return f"{operator.kind} {operator.name}".strip(), operator.shapes, ran


def _outermost(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Leave out what ran inside an operator, as in the body of a WHILE."""
    kept: list[Kernel] = []
    end_us = 0
    for kernel in kernels:
        if end_us and (kernel.begin_us is None or kernel.begin_us < end_us):
            continue
        end_us = 0
        kept.append(kernel)
        if kernel.begin_us is not None and kernel.name in ("WHILE", "IF"):
            end_us = kernel.begin_us + kernel.duration_us
    return kept


def _placed(run: KernelRun, kernels: Sequence[Kernel], places: Sequence[int]) -> list[PlacedKernel]:
    placed: list[PlacedKernel] = []
    now = 1000 * run.begin_us
    numbered = list(zip(kernels, places, strict=True))
    for has_begin, group in groupby(numbered, key=lambda pair: pair[0].begin_us is not None):
        stretch = list(group)
        if not has_begin:
            after = numbered[len(placed) + len(stretch) :]
            end = after[0][0].begin_us if after else run.begin_us + run.duration_us
            taken = sum(kernel.duration_us for kernel, _ in stretch)
            now += max(0, 1000 * ((end or 0) - taken) - now) // 2
        for kernel, place in stretch:
            begin = now if kernel.begin_us is None else 1000 * kernel.begin_us
            placed.append(PlacedKernel(kernel.name, place, begin, 1000 * kernel.duration_us))
            now = begin + 1000 * kernel.duration_us
    return placed


def operators_of(kernels: Sequence[str], operators: Sequence[str]) -> list[int]:
    """Return which operator each kernel computes, by its place; -1: there is none to tell.

    XNNPACK runs a model's operators in order, some as several kernels and some as none. Kernels
    whose kind is that of an operator are matched in order; those between two matches belong to the
    operators between them, in order, or else to the operator before them.
    """
    made = [_letters(_MADE_BY.get(kind, kind)) for kind in operators]
    words = [name.partition(" (")[0] for name in kernels]
    ran = [_letters(_PRODUCT if word in _IS_PRODUCT else word) for word in words]
    blocks = SequenceMatcher(None, ran, made, autojunk=False).get_matching_blocks()
    places: list[int] = []
    next_operator = 0
    for block in blocks:
        between = iter(range(next_operator, block.b))
        last = next_operator - 1
        for _ in range(len(places), block.a):
            last = next(between, last)
            places.append(last)
        places.extend(range(block.b, block.b + block.size))
        next_operator = block.b + block.size
    return places


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalpha())
