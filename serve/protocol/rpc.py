"""Requests and answers of gRPC, as messages and as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.wording import quoted
from rankslice.serve.protocol.messages import MESSAGES
from rankslice.serve.protocol.tensors import (
    FILE,
    Request,
    all_inputs,
    array_of_bytes,
    array_of_numbers,
    by_name,
    checked_spec,
    datatype_of,
    file_of,
    invalid,
    refuse_parameters,
    timeout_of,
    wanted_outputs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER_BYTES = 64 * 1024
"""Of a message besides values."""
_INTEGER_BYTES = 10
"""Most bytes of an integer in a message."""

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""The field that has the values of a datatype; others are sent as bytes only."""


def most_bytes(inputs: Sequence[Tensor]) -> int:
    """Return the size of the largest request that a model can need."""
    return _HEADER_BYTES + sum(
        max(spec.nbytes, _most_bytes_each(spec.dtype) * math.prod(spec.shape)) for spec in inputs
    )


def _most_bytes_each(dtype: str) -> int:
    """Return the size of the largest number of a type as an integer of protobuf; 0: it is none."""
    if dtype.startswith("uint"):
        return -(-int(dtype.removeprefix("uint")) // 7)
    return _INTEGER_BYTES if dtype.startswith("int") else 0


def read_request(
    message: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, takes_images: bool = False
) -> Request:
    """Return the request that a ``ModelInferRequest`` is; an input may be an image file."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise invalid(f"raw_input_contents has {len(raw)} items for {len(message.inputs)} inputs")
    arrays = [
        _input(tensor, inputs, raw[number] if raw else None, takes_images=takes_images)
        for number, tensor in enumerate(message.inputs)
    ]
    for output in message.outputs:
        refuse_parameters(f"output {quoted(output.name)}", _parameters(output))
    wanted = wanted_outputs(outputs, [output.name for output in message.outputs])
    parameters = _parameters(message)
    refuse_parameters("the request", parameters)
    as_bytes = bool(raw) or any(datatype_of(spec) not in _CONTENTS for spec in wanted)
    return Request(
        all_inputs(inputs, arrays),
        wanted,
        message.id,
        timeout_of(parameters.get("timeout")),
        frozenset(spec.name for spec in wanted) if as_bytes else frozenset(),
    )


def answer(model: str, version: str, request: Request, results: Mapping[str, NDArray[Any]]) -> Any:
    """Return the ``ModelInferResponse``: values as bytes if those of the request were, too."""
    message = MESSAGES["ModelInferResponse"](model_name=model, model_version=version, id=request.id)
    for spec in request.outputs:
        values, datatype = results[spec.name], datatype_of(spec)
        tensor = message.outputs.add(name=spec.name, datatype=datatype, shape=values.shape)
        if request.as_bytes:
            message.raw_output_contents.append(np.ascontiguousarray(values).tobytes())
        else:
            getattr(tensor.contents, _CONTENTS[datatype]).extend(values.reshape(-1).tolist())
    return message


def _input(
    tensor: Any, inputs: Sequence[Tensor], raw: bytes | None, *, takes_images: bool
) -> tuple[Tensor, Callable[[], NDArray[Any] | bytes]]:
    """Return the model's input that is meant, and what returns its array."""
    spec = by_name(inputs, "input", tensor.name)
    where = f"input {quoted(spec.name)}"
    refuse_parameters(where, _parameters(tensor))
    if tensor.datatype == FILE and takes_images:
        items = list(tensor.contents.bytes_contents)
        return spec, partial(file_of, where, list(tensor.shape), raw, items)
    shaped = checked_spec(spec, tensor.datatype, list(tensor.shape))
    filled = [field.name for field, _ in tensor.contents.ListFields()]
    if raw is not None:
        if filled:
            raise invalid(f"{where}: expected raw_input_contents or contents, not both")
        return spec, partial(array_of_bytes, shaped, raw)
    expected = _CONTENTS.get(datatype_of(spec), "raw_input_contents")
    if filled not in ([expected], []):
        raise invalid(f"{where}: values of type {tensor.datatype} belong into {expected}")
    if expected == "raw_input_contents":
        raise invalid(f"{where}: values of type {tensor.datatype} are given as bytes only")
    return spec, partial(array_of_numbers, shaped, list(getattr(tensor.contents, expected)))


def _parameters(message: Any) -> dict[str, Any]:
    return {
        entry.key: getattr(entry.value, chosen)
        for entry in message.parameters
        if (chosen := entry.value.WhichOneof("choice"))
    }
