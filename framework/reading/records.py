"""Strict conversion of JSON values to frozen dataclasses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.wording import bare, described, joined, quoted

T = TypeVar("T")

_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}
_PAIRS = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Only:
    """A condition on the values of a field, as in ``Annotated[str, Only(...)]``."""

    accepts: Callable[[Any], object]
    what: str
    """For messages: ``a version``."""


def between(least: float, most: float) -> Only:
    """Return the condition that a number lies between two limits, or equals one."""
    return Only(lambda value: least <= value <= most, f"a number from {least} to {most}")


def read_record(kind: type[T], value: object, where: str) -> T:
    """Return the dataclass ``kind`` with the values of a JSON object.

    The object must have exactly the fields of the dataclass. Field types may be ``str``, ``int``,
    ``float`` (finite), ``bool``, other such dataclasses, tuples of one type, unions of these with
    ``None``, and tuples of pairs of ``str`` (an object in JSON). :class:`Only` adds a condition.

    Args:
        kind: The dataclass.
        value: What :func:`json.loads` returned.
        where: Position of the value, for messages.

    Raises:
        RankSliceError: A field is missing, unknown or of another type. All mistakes at once.
    """
    raise_mistakes(
        Mistake(f"{where}: {path}" if path else where, found, expected)
        for path, found, expected in _faults(kind, value, "")
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
        text: The text of the file.
        where: Name of the file, for messages.
        kind: ``plan`` for the format ``rankslice-plan``.
        versions: Versions that can be read, the current one first.
        source: The command that writes such files.
        remedy: What to do about a file of another version.

    Raises:
        RankSliceError: The text is not such an object, or has another version.
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
    """Return the JSON Schema of texts that :func:`read_document` reads.

    Args:
        kind: Dataclass of the object.
        name: ``plan`` for the format ``rankslice-plan``.
        version: The current one.
        tail: Schemas of fields that follow those of the dataclass.
    """
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


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (UnionType, Union)


def _describe(hint: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; put those of dataclasses into ``kinds``."""
    if _is_optional(hint):
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
    if _is_optional(hint):
        if value is not None:
            yield from _faults(get_args(hint)[0], value, path)
    elif get_origin(hint) is Annotated:
        yield from _narrow_faults(hint, value, path)
    elif is_dataclass(hint) or hint == _PAIRS:
        yield from _object_faults(hint, value, path)
    elif get_origin(hint) is tuple:
        yield from _list_faults(get_args(hint)[0], value, path)
    elif hint is float:
        if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
            yield path, f"found {described(value)}", f"expected {_WORDS[hint]}"
    elif type(value) is not hint:
        yield path, f"found {described(value)}", f"expected {_WORDS[hint]}"


def _narrow_faults(hint: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with a value of which a field does not take all."""
    inner, only = get_args(hint)
    faults = [*_faults(inner, value, path)]
    yield from faults
    if not faults and value is not None and not only.accepts(value):
        yield path, f"found {described(value)}", f"expected {only.what}"


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
    hints = (
        dict.fromkeys(value, str) if hint == _PAIRS else get_type_hints(hint, include_extras=True)
    )
    for name in value:
        if name not in hints:
            yield path, f"there is no field {quoted(name)}", f"expected {joined([*hints], 'or')}"
    for name, inner in hints.items():
        if name not in value:
            yield path, f"the field '{name}' is missing", ""
        else:
            yield from _faults(inner, value[name], f"{path}.{name}" if path else bare(name))


def as_record(hint: Any, value: Any) -> Any:
    """Return a JSON value without mistakes as its type has it."""
    if value is None:
        return None
    if _is_optional(hint) or get_origin(hint) is Annotated:
        return as_record(get_args(hint)[0], value)
    if hint == _PAIRS:
        return tuple(value.items())
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        read = {
            field.name: as_record(hints[field.name], value[field.name]) for field in fields(hint)
        }
        return hint(**read)  # type: ignore[operator]
    if get_origin(hint) is tuple:
        return tuple(as_record(get_args(hint)[0], item) for item in value)
    return value
