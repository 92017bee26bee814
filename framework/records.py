"""Frozen dataclasses out of what a JSON file says, strictly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.wording import bare, described, joined, quoted

__all__ = ["read_record", "record_schema"]

T = TypeVar("T")

_WORDS = {str: "a text", int: "a whole number", bool: "true or false"}
_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    bool: {"type": "boolean"},
}
_PAIRS = tuple[tuple[str, str], ...]


def read_record(kind: type[T], value: object, place: str) -> T:
    """Return the dataclass ``kind`` with the values of a JSON object.

    The object has exactly the fields of the dataclass. Their types may be ``str``, ``int``,
    ``bool``, other such dataclasses, tuples of one type, ``None`` besides any of these, and
    tuples of pairs of ``str``, which JSON has as an object.

    Args:
        kind: The dataclass.
        value: What :func:`json.loads` returned.
        place: Where the value stands, for messages.

    Raises:
        RankSliceError: A field is missing, unknown or of another type. All mistakes at once.
    """
    raise_mistakes(
        Mistake(f"{place}: {path}" if path else place, found, expected)
        for path, found, expected in _faults(kind, value, "")
    )
    record: T = _read(kind, value)
    return record


def record_schema(kind: type[Any]) -> dict[str, Any]:
    """Return a JSON Schema whose ``$defs`` describe a dataclass and those in it, by their names.

    It takes what :func:`read_record` takes, but numbers below zero: no record has any.
    """
    kinds: dict[str, Any] = {}
    _describe(kind, kinds)
    return {"$ref": f"#/$defs/{kind.__name__}", "$defs": kinds}


def _describe(hint: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; put those of dataclasses into ``kinds``."""
    if isinstance(hint, UnionType):
        return {"anyOf": [_describe(get_args(hint)[0], kinds), {"type": "null"}]}
    if hint == _PAIRS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _describe(get_args(hint)[0], kinds)}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        hints = get_type_hints(hint)
        kinds[name] = {
            "description": (hint.__doc__ or "").partition("\n")[0],
            "type": "object",
            "required": list(hints),
            "properties": {field: _describe(inner, kinds) for field, inner in hints.items()},
            "additionalProperties": False,
        }
        return {"$ref": f"#/$defs/{name}"}
    return dict(_SCHEMAS[hint])


def _faults(hint: Any, value: object, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a value that should have the type ``hint``: where, what, why."""
    if isinstance(hint, UnionType):
        if value is not None:
            yield from _faults(get_args(hint)[0], value, path)
    elif is_dataclass(hint) or hint == _PAIRS:
        yield from _object_faults(hint, value, path)
    elif get_origin(hint) is tuple:
        yield from _list_faults(get_args(hint)[0], value, path)
    elif type(value) is not hint:
        yield path, f"found {described(value)}", f"expected {_WORDS[hint]}"


def _list_faults(hint: Any, value: object, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a value that should be a list of ``hint``."""
    if not isinstance(value, list):
        yield path, f"found {described(value)}", "expected a list"
        return
    for position, item in enumerate(value):
        yield from _faults(hint, item, f"{path}[{position}]")


def _object_faults(hint: Any, value: object, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a value that should be an object."""
    if not isinstance(value, dict):
        yield path, f"found {described(value)}", "expected an object"
        return
    hints = dict.fromkeys(value, str) if hint == _PAIRS else get_type_hints(hint)
    for name in value:
        if name not in hints:
            yield path, f"there is no field {quoted(name)}", f"expected {joined([*hints], 'or')}"
    for name, inner in hints.items():
        if name not in value:
            yield path, f"the field '{name}' is missing", ""
        else:
            yield from _faults(inner, value[name], f"{path}.{name}" if path else bare(name))


def _read(hint: Any, value: Any) -> Any:
    """Return a value without mistakes as its type has it."""
    if value is None:
        return None
    if isinstance(hint, UnionType):
        return _read(get_args(hint)[0], value)
    if hint == _PAIRS:
        return tuple(value.items())
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        read = {field.name: _read(hints[field.name], value[field.name]) for field in fields(hint)}
        return hint(**read)  # type: ignore[operator]
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in value)
    return value
