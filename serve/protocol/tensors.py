"""Tensors of the protocol, checked against those of a model; why a request is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from rankslice.backend.runtime.errors import BoundError, JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.wording import listed, printable, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DATATYPES = {
    "bool": "BOOL",
    **{
        f"{sign}int{bits}": f"{sign}int{bits}".upper()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
}

_MAX_CHARACTERS = 2000
_MAX_DIMENSIONS = 64
_MAX_SIZE = 2**63 - 1
_STEP = 1 << 14
"""Numbers that are converted at a time: between two steps other threads go on."""


class Reason(Enum):
    """A reason: its label in the metrics, the status of HTTP and the status code of gRPC."""

    INVALID = ("invalid", 400, "INVALID_ARGUMENT")
    UNAUTHORISED = ("unauthorised", 401, "UNAUTHENTICATED")
    UNKNOWN = ("unknown", 404, "NOT_FOUND")
    METHOD = ("method", 405, "UNIMPLEMENTED")
    SLOW = ("slow", 408, "DEADLINE_EXCEEDED")
    TOO_LARGE = ("too_large", 413, "RESOURCE_EXHAUSTED")
    ENCODING = ("encoding", 415, "UNIMPLEMENTED")
    QUEUE_FULL = ("queue_full", 429, "RESOURCE_EXHAUSTED")
    NOT_READY = ("not_ready", 503, "UNAVAILABLE")
    BUSY = ("busy", 503, "RESOURCE_EXHAUSTED")
    FAILED = ("failed", 503, "UNAVAILABLE")
    LATE = ("late", 504, "DEADLINE_EXCEEDED")

    def __init__(self, label: str, http: int, grpc: str) -> None:
        self.label = label
        self.http = http
        self.grpc = grpc


class RefusalError(Exception):
    def __init__(self, reason: Reason, message: str, retry_after_s: int | None = None) -> None:
        self.reason = reason
        self.message = printable(message[:_MAX_CHARACTERS])
        self.retry_after_s = retry_after_s
        super().__init__(self.message)


def invalid(message: str) -> RefusalError:
    return RefusalError(Reason.INVALID, message)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client wants, checked against the model."""

    inputs: dict[str, NDArray[Any] | bytes]
    """Bytes are an image file."""
    outputs: tuple[Tensor, ...]
    """Those to be returned, in this order."""
    id: str = ""
    timeout_s: float | None = None
    """How long the client waits."""
    as_bytes: frozenset[str] = field(default_factory=frozenset)
    """The outputs to be returned as bytes, and not as numbers."""


def check_served(where: str, specs: Iterable[Tensor]) -> None:
    """Raise :class:`RankSliceError` if the protocol has no name for the type of a tensor."""
    raise_mistakes(
        Mistake(
            f"{where}: tensor {quoted(spec.name)}",
            f"has values of type {spec.dtype}",
            f"the protocol serves {', '.join(_DATATYPES)}",
        )
        for spec in specs
        if spec.dtype not in _DATATYPES
    )


def datatype_of(spec: Tensor) -> str:
    return _DATATYPES[spec.dtype]


def shape_of(spec: Tensor) -> list[int]:
    """Return a tensor's shape; -1: a size that may change from request to request."""
    symbols = spec.symbols or ("",) * len(spec.shape)
    return [-1 if open_ else size for size, open_ in zip(spec.shape, symbols, strict=True)]


def metadata_of(specs: Iterable[Tensor]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "datatype": datatype_of(spec), "shape": shape_of(spec)}
        for spec in specs
    ]


def by_name(specs: Iterable[Tensor], kind: str, name: object) -> Tensor:
    if not isinstance(name, str):
        raise invalid(f"{kind}: expected a name")
    names = {spec.name: spec for spec in specs}
    if name not in names:
        hint = nearest(name, names) or f"it has {listed(list(names))}"
        raise invalid(f"{kind} {quoted(name)}: the model has no such {kind}; {hint}")
    return names[name]


def all_inputs(
    specs: Sequence[Tensor], arrays: Sequence[tuple[Tensor, Callable[[], NDArray[Any] | bytes]]]
) -> dict[str, NDArray[Any] | bytes]:
    names = [spec.name for spec, _ in arrays]
    for spec in specs:
        if names.count(spec.name) != 1:
            problem = "is missing" if spec.name not in names else "is given twice"
            raise invalid(f"input {quoted(spec.name)} {problem}")
    return {spec.name: read() for spec, read in arrays}


def checked_spec(spec: Tensor, datatype: object, shape: Any) -> Tensor:
    """Return an input of the shape that a request gives it."""
    where = f"input {quoted(spec.name)}"
    if datatype != datatype_of(spec):
        actual = quoted(datatype) if isinstance(datatype, str) else "no name of a type"
        raise invalid(f"{where}: datatype is {actual}, expected {datatype_of(spec)}")
    is_shape = isinstance(shape, list) and len(shape) <= _MAX_DIMENSIONS
    if not is_shape or not all(type(size) is int and abs(size) <= _MAX_SIZE for size in shape):
        raise invalid(f"{where}: shape is not a list of sizes, expected {shape_of(spec)}")
    try:
        return spec.of_shape(shape)
    except BoundError:
        raise invalid(f"{where}: shape is {shape}, expected at most {list(spec.shape)}") from None
    except JobError as error:
        raise invalid(f"{where}: {error}") from None


FILE = "BYTES"
"""The datatype of an image file in the place of a tensor."""
_LENGTH = struct.Struct("<I")


def file_of(where: str, shape: Sequence[int], raw: bytes | None, items: Sequence[bytes]) -> bytes:
    """Return the only element of a tensor of bytes; ``raw``: it, behind its length."""
    if raw is not None:
        items = [raw[_LENGTH.size :]]
        if len(raw) < _LENGTH.size or _LENGTH.unpack_from(raw)[0] != len(items[0]):
            raise invalid(f"{where}: has not the bytes of one file behind their number")
    if math.prod(shape) != 1 or len(items) != 1:
        raise invalid(f"{where}: expected one image file, of shape [1]")
    return items[0]


def array_of_bytes(spec: Tensor, data: bytes | memoryview) -> NDArray[Any]:
    """Return an input, of its shape here: a view of its values, little-endian, by rows."""
    if len(data) != spec.nbytes:
        problem = f"has {len(data)} bytes, and its shape {list(spec.shape)} needs {spec.nbytes}"
        raise invalid(f"input {quoted(spec.name)} {problem}")
    dtype, shape = spec.storage
    if dtype.kind == "b" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise invalid(f"input {quoted(spec.name)}: a BOOL is neither 0 nor 1")
    return np.frombuffer(data, dtype).reshape(shape)


def array_of_numbers(spec: Tensor, data: object) -> NDArray[Any]:
    """Return an input from numbers in a list or in lists of lists, of its shape here."""
    where = f"input {quoted(spec.name)}"
    if spec.dtype == "bfloat16":
        raise invalid(f"{where}: values of type BF16 are given as bytes only")
    dtype, shape = spec.storage
    numbers, lengths = _flat(where, data)
    if len(numbers) != math.prod(shape) or lengths not in (shape, (len(numbers),)):
        raise invalid(f"{where}: has values of shape {list(lengths)}, not {list(shape)}")
    values = np.empty(len(numbers), dtype)
    for begin in range(0, len(numbers), _STEP):
        values[begin : begin + _STEP] = _array(where, spec, numbers[begin : begin + _STEP])
    return values.reshape(shape)


def _array(where: str, spec: Tensor, numbers: Sequence[Any]) -> NDArray[Any]:
    dtype, _ = spec.storage
    kinds, expected = _KINDS[dtype.kind]
    if not kinds.issuperset(map(type, numbers)):
        raise invalid(f"{where}: expected {expected}")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if min(numbers) < info.min or max(numbers) > info.max:
            raise invalid(f"{where}: a value is not within {info.min} to {info.max}")
    try:
        with np.errstate(over="ignore"):
            return np.array(numbers, dtype)
    except OverflowError:
        raise invalid(f"{where}: an integer is too large for {datatype_of(spec)}") from None


_KINDS = {
    "b": (frozenset([bool]), "true or false"),
    "i": (frozenset([int]), "integers"),
    "u": (frozenset([int]), "integers"),
    "f": (frozenset([int, float]), "numbers"),
}
"""By kind of a numpy type: what its values are in JSON."""


def _flat(where: str, data: object) -> tuple[list[Any], tuple[int, ...]]:
    if not isinstance(data, list):
        raise invalid(f"{where}: data is not a list")
    shape = [len(data)]
    while data and isinstance(data[0], list):
        length = len(data[0])
        if not all(isinstance(inner, list) and len(inner) == length for inner in data):
            raise invalid(f"{where}: its lists differ in length")
        shape.append(length)
        data = list(chain.from_iterable(data))
    return data, tuple(shape)


def wanted_outputs(specs: Sequence[Tensor], names: Sequence[object]) -> tuple[Tensor, ...]:
    """Return the outputs that a request names; all if it names none."""
    wanted = tuple(by_name(specs, "output", name) for name in names)
    if len({spec.name for spec in wanted}) < len(wanted):
        raise invalid("an output is named twice")
    return wanted or tuple(specs)


def timeout_of(microseconds: object) -> float | None:
    """Return the seconds of the parameter ``timeout``; ``None``: it is not given, or 0."""
    if microseconds is None:
        return None
    if type(microseconds) is not int or not 0 <= microseconds <= _MAX_SIZE:
        raise invalid("parameter timeout: expected microseconds, an integer of 0 or more")
    return microseconds / 1e6 or None


def refuse_parameters(where: str, names: Iterable[str]) -> None:
    """Raise :class:`RefusalError` for parameters whose extensions are not supported."""
    for name in names:
        if name in _NOT_SUPPORTED:
            raise invalid(f"{where}: {_NOT_SUPPORTED[name]} is not supported")


_NOT_SUPPORTED = {
    "shared_memory_region": "shared memory",
    "classification": "classification",
    "sequence_id": "a sequence of requests",
}
