"""Strict conversion of JSON values to frozen dataclasses."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

from rankslice.backend.runtime.job.strict import (
    PAIRS,
    Only as Only,
    as_record as as_record,
    between as between,
    faults,
    field_types,
    is_optional,
)
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.wording import described

T = TypeVar("T")

_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}


def read_record(kind: type[T], value: object, where: str) -> T:
    """Return the dataclass ``kind`` with the values of a JSON object.

    The object must have exactly the fields of the dataclass, of types as :func:`.strict.faults`
    knows them.
    """
    raise_mistakes(
        Mistake(f"{where}: {path}" if path else where, found, expected)
        for path, found, expected in faults(kind, value)
    )
    record: T = as_record(kind, value)
    return record


def read_document(
    kind: type[T], text: str, where: str, name: str, version: int, source: str, remedy: str
) -> T:
    """Return the dataclass ``kind`` with the values of a JSON text that states its format.

    Args:
        name: ``plan`` for the format ``rankslice-plan``.
        source: The command that makes such files.
        remedy: What to do about a file of another version.
    """
    expected = f"expected one that `{source}` made"
    try:
        record = read_json(text, where, expected)
    except RankSliceError:
        found = f"this is not a {name}, or it is damaged"
        raise RankSliceError(Mistake(where, found, expected)) from None
    if not isinstance(record, dict) or record.pop("format", None) != f"rankslice-{name}":
        raise RankSliceError(Mistake(where, f"this is not a {name}", expected))
    other = record.pop("version", None)
    if type(other) is not int or other != version:
        found = f"this is a {name} of version {described(other)}, not {version}"
        expected = f"made by another version of RankSlice: {remedy}"
        raise RankSliceError(Mistake(where, found, expected))
    return read_record(kind, record, where)


def document_schema(kind: type[Any], name: str, version: int) -> dict[str, Any]:
    """Return the JSON Schema of texts that :func:`read_document` reads.

    It refuses numbers below zero everywhere. Its ``$defs`` describe the dataclasses in ``kind``.
    """
    kinds: dict[str, Any] = {}
    _describe(kind, kinds)
    record = kinds.pop(kind.__name__)
    head = {"format": {"const": f"rankslice-{name}"}, "version": {"const": version}}
    return {
        "title": f"RankSlice {name}",
        **record,
        "required": [*head, *record["required"]],
        "properties": {**head, **record["properties"]},
        "$defs": kinds,
    }


def _describe(hint: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    if is_optional(hint):
        return {"anyOf": [_describe(get_args(hint)[0], kinds), {"type": "null"}]}
    if get_origin(hint) is Annotated:
        return _describe(get_args(hint)[0], kinds)
    if hint == PAIRS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _describe(get_args(hint)[0], kinds)}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        hints = field_types(hint)
        kinds[name] = {
            "description": (hint.__doc__ or "").partition("\n")[0],
            "type": "object",
            "required": list(hints),
            "properties": {field: _describe(inner, kinds) for field, inner in hints.items()},
            "additionalProperties": False,
        }
        return {"$ref": f"#/$defs/{name}"}
    return dict(_SCHEMAS[hint])
