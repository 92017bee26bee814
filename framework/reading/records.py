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


def record_schema(kind: type[Any]) -> dict[str, Any]:
    """Return a JSON Schema whose ``$defs`` describe a dataclass and those in it, by their names.

    It accepts what :func:`read_record` accepts, except numbers below zero.
    """
    kinds: dict[str, Any] = {}
    _describe(kind, kinds)
    return {"$ref": f"#/$defs/{kind.__name__}", "$defs": kinds}


def read_document(
    text: str, where: str, kind: str, versions: tuple[int, ...], source: str, remedy: str
) -> tuple[dict[str, Any], int]:
    """Return the object in a JSON text, without its format and version, and its version.

    Args:
        kind: ``plan`` for the format ``rankslice-plan``.
        versions: Versions that can be read, the current one first.
    """
    expected = f"expected one that `{source}` made"
    try:
        record = read_json(text, where, expected)
    except RankSliceError:
        found = f"this is not a {kind}, or it is damaged"
        raise RankSliceError(Mistake(where, found, expected)) from None
    if not isinstance(record, dict) or record.pop("format", None) != f"rankslice-{kind}":
        raise RankSliceError(Mistake(where, f"this is not a {kind}", expected))
    version = record.pop("version", None)
    if type(version) is not int or version not in versions:
        found = f"this is a {kind} of version {described(version)}, not {versions[0]}"
        expected = f"made by another version of RankSlice: {remedy}"
        raise RankSliceError(Mistake(where, found, expected))
    return record, version


def document_schema(kind: type[Any], name: str, version: int, **tail: Any) -> dict[str, Any]:
    """Return the JSON Schema of texts that :func:`read_document` reads."""
    kinds = record_schema(kind)["$defs"]
    record = kinds.pop(kind.__name__)
    head = {"format": {"const": f"rankslice-{name}"}, "version": {"const": version}}
    return {
        "title": f"RankSlice {name}",
        **record,
        "required": [*head, *record["required"], *tail],
        "properties": {**head, **record["properties"], **tail},
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
