"""Requests and answers of HTTP: JSON, and the binary tensor data that may follow it."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.wording import quoted
from rankslice.serve.protocol.tensors import (
    Reason,
    RefusalError,
    Request,
    all_inputs,
    array_of_bytes,
    array_of_numbers,
    by_name,
    checked_spec,
    datatype_of,
    invalid,
    refuse_parameters,
    timeout_of,
    wanted_outputs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER_BYTES = 64 * 1024
"""Of the JSON besides numbers."""
_NUMBER_BYTES = 32
"""Most characters of a number in JSON, with comma, blanks and brackets."""
_OF_NUMBERS = b"0123456789+-.eE,[] \t\r\ntrufalsNaInity"
"""Characters of lists of numbers, and of ``true``, ``false``, ``NaN`` and ``Infinity``."""
_NO_ASCII = re.compile(rb"[\x80-\xff]+")
_STEP = 1 << 14
"""Bytes or numbers that are handled at a time: between two steps other threads go on."""


def most_bytes(inputs: Sequence[Tensor], *, is_binary: bool) -> int:
    """Return the size of the largest request for a model, with a part of binary data or not."""
    if is_binary:
        return _HEADER_BYTES + sum(spec.nbytes for spec in inputs)
    return _HEADER_BYTES + _NUMBER_BYTES * sum(math.prod(spec.shape) for spec in inputs)


def read_request(
    body: bytes,
    header_bytes: int | None,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> Request:
    """Return the request that a body holds.

    ``header_bytes``: length of the JSON before binary data; 0: the body has the values of the only
    input and nothing else; ``None``: it is all JSON.
    """
    if header_bytes == 0:
        return _raw_request(body, inputs, outputs)
    if header_bytes is not None and header_bytes > len(body):
        raise invalid(f"Inference-Header-Content-Length is {header_bytes}, the body {len(body)}")
    text = body[:header_bytes]
    _check_count(text, inputs)
    record = _object("the request", _json(text))
    parameters = _parameters("the request", record)
    binary = _BinaryData(memoryview(body)[len(body) if header_bytes is None else header_bytes :])
    arrays = [_input(item, inputs, binary) for item in _list("inputs", record.get("inputs"))]
    binary.check_end()
    named = [_object("an output", item) for item in _list("outputs", record.get("outputs") or [])]
    wanted = wanted_outputs(outputs, [item.get("name") for item in named])
    default = _bool("parameter binary_data_output", parameters.get("binary_data_output", False))
    is_binary = {}
    for item in named:
        value = _parameters("output", item).get("binary_data", default)
        is_binary[item["name"]] = _bool("parameter binary_data", value)
    return Request(
        all_inputs(inputs, arrays),
        wanted,
        _text("id", record.get("id", "")),
        timeout_of(parameters.get("timeout")),
        frozenset(spec.name for spec in wanted if is_binary.get(spec.name, default)),
    )


def read_index_request(body: bytes) -> bool:
    """Return whether only models that are ready are asked for."""
    record = _object("the request", _json(body)) if body.strip() else {}
    only_ready: bool = _bool("ready", record.get("ready", False))
    return only_ready


def write_answer(
    model: str, version: str, request: Request, results: Mapping[str, NDArray[Any]]
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON if binary data follows."""
    items: list[str] = []
    binary: list[bytes] = []
    for spec in request.outputs:
        values = results[spec.name]
        item: dict[str, Any] = {"name": spec.name, "datatype": datatype_of(spec)}
        item["shape"] = list(values.shape)
        if spec.name in request.as_bytes:
            binary.append(np.ascontiguousarray(values).tobytes())
            item["parameters"] = {"binary_data_size": len(binary[-1])}
            items.append(json.dumps(item))
        else:
            items.append(_with_list(item, "data", _numbers(spec, values)))
    record = {"model_name": model, "model_version": version}
    header = _with_list({"id": request.id, **record} if request.id else record, "outputs", items)
    content = header.encode()
    return (b"".join((content, *binary)), len(content)) if binary else (content, None)


def _with_list(record: Mapping[str, Any], key: str, items: Iterable[str]) -> str:
    """Return an object as JSON, with a list of texts that are JSON under a further key."""
    return f'{json.dumps(record)[:-1]}, "{key}": [{", ".join(items)}]}}'


class _BinaryData:
    """The part of a body after the JSON, which inputs take piece by piece."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._taken = 0

    def take(self, where: str, size: object) -> memoryview:
        """Return the next bytes; raise if there are not as many."""
        if type(size) is not int or not 0 <= size <= len(self._data) - self._taken:
            left = len(self._data) - self._taken
            raise invalid(f"{where}: binary_data_size exceeds the {left} bytes that are left")
        self._taken += size
        return self._data[self._taken - size : self._taken]

    def check_end(self) -> None:
        if self._taken < len(self._data):
            left = len(self._data) - self._taken
            raise invalid(f"{left} bytes of binary data belong to no input")


def _raw_request(body: bytes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Request:
    if len(inputs) != 1 or inputs[0].is_open:
        expected = "expected JSON: the model has several inputs, or one whose sizes change"
        raise invalid(f"Inference-Header-Content-Length is 0; {expected}")
    return Request({inputs[0].name: array_of_bytes(inputs[0], body)}, tuple(outputs))


def _input(
    item: object, inputs: Sequence[Tensor], binary: _BinaryData
) -> tuple[Tensor, Callable[[], NDArray[Any]]]:
    """Return the model's input that is meant, and what returns its array."""
    record = _object("an input", item)
    spec = by_name(inputs, "input", record.get("name"))
    where = f"input {quoted(spec.name)}"
    parameters = _parameters(where, record)
    size = parameters.get("binary_data_size")
    if ("data" in record) == (size is not None):
        raise invalid(f"{where}: expected either data or the parameter binary_data_size")
    shaped = checked_spec(spec, record.get("datatype"), record.get("shape"))
    if size is not None:
        return spec, partial(array_of_bytes, shaped, binary.take(where, size))
    return spec, partial(array_of_numbers, shaped, record["data"])


def _numbers(spec: Tensor, values: NDArray[Any]) -> Iterator[str]:
    advice = "ask for it with the parameter binary_data"
    if spec.dtype == "bfloat16":
        raise invalid(f"output {quoted(spec.name)}: JSON has no values of type BF16; {advice}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise invalid(f"output {quoted(spec.name)}: JSON has no infinity and no NaN; {advice}")
    flat = values.reshape(-1)
    steps = range(0, len(flat), _STEP)
    return (json.dumps(flat[begin : begin + _STEP].tolist())[1:-1] for begin in steps)


def _check_count(text: bytes, inputs: Sequence[Tensor]) -> None:
    """Raise if a text has more in it than the model can need: a value takes memory once it is read.

    All but the first value of a list follow a comma. Objects and texts have other characters.
    """
    shapes = [spec.shape for spec in inputs]
    numbers = sum(map(math.prod, shapes))
    lists = sum(math.prod(shape[:axis]) for shape in shapes for axis in range(len(shape)))
    steps = [slice(begin, begin + _STEP) for begin in range(0, len(text), _STEP)]
    for limit, count in (
        (numbers + lists, sum(text[step].count(b",") for step in steps)),
        (lists, sum(text[step].count(b"[") for step in steps)),
        (0, sum(len(text[step].translate(None, _OF_NUMBERS)) for step in steps)),
    ):
        if count > _HEADER_BYTES + limit:
            message = f"the request has more than {numbers} numbers, the most for this model"
            raise RefusalError(Reason.TOO_LARGE, message)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return letters outside of ASCII as JSON writes them in it, and where they end.

    With one of them, each character of the text would take up to four bytes.
    """
    assert isinstance(error, UnicodeDecodeError)
    match = _NO_ASCII.match(error.object, error.start)
    assert match is not None
    return json.dumps(match[0].decode())[1:-1], match.end()


_ESCAPE = "rankslice.escape"
codecs.register_error(_ESCAPE, _escaped)


def _json(text: bytes) -> object:
    """Read a JSON text.

    The reader in C keeps other threads waiting, but for calls of functions in Python.
    """
    try:
        ascii_ = text.decode("ascii", _ESCAPE)
        return json.loads(ascii_, parse_float=lambda x: float(x), parse_int=lambda x: int(x))
    except (ValueError, RecursionError) as error:
        reason = "" if isinstance(error, UnicodeDecodeError) else f" ({error})"
        raise invalid(f"the request is not valid JSON{reason}") from None


def _of_kind(kind: type, called: str, where: str, value: object) -> Any:
    if not isinstance(value, kind):
        raise invalid(f"{where}: expected {called}")
    return value


_object = partial(_of_kind, dict, "a JSON object")
_list = partial(_of_kind, list, "a list")
_bool = partial(_of_kind, bool, "true or false")
_text = partial(_of_kind, str, "a text")


def _parameters(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    parameters: dict[str, Any] = _object(f"{where}: parameters", record.get("parameters") or {})
    refuse_parameters(where, parameters)
    return parameters
