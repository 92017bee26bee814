"""Strict conversion of foreign values, of JSON or of a driver's literals, to frozen dataclasses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from .wording import bare, described, joined, quoted

_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
PAIRS = tuple[tuple[str, str], ...]
"""Names and values: an object in JSON."""

Fault: TypeAlias = tuple[str, str, str]
"""What is wrong with a value: where in it, what was found, and what was expected."""


@dataclass(frozen=True, slots=True)
class Only:
    """A condition on the values of a field, as in ``Annotated[str, Only(...)]``."""

    accepts: Callable[[Any], object]
    what: str
    """For messages: ``a version``."""


def between(least: float, most: float) -> Only:
    return Only(lambda value: least <= value <= most, f"a number from {least} to {most}")


def faults(hint: Any, value: object, path: str = "") -> Iterator[Fault]:
    """Yield what is wrong with a value that should have a type.

    Types may be ``str``, ``int``, ``float`` (finite), ``bool``, dataclasses of such fields, tuples
    of one type, dictionaries with texts as keys, unions of these with ``None``, and :data:`PAIRS`.
    :class:`Only` adds a condition. A dataclass is an object with exactly its fields, or an
    instance; a tuple is a list, too.
    """
    if is_optional(hint):
        if value is not None:
            yield from faults(get_args(hint)[0], value, path)
    elif get_origin(hint) is Annotated:
        yield from _narrow_faults(hint, value, path)
    elif is_dataclass(hint) or hint == PAIRS or get_origin(hint) is dict:
        yield from _object_faults(hint, value, path)
    elif get_origin(hint) is tuple:
        yield from _list_faults(get_args(hint)[0], value, path)
    elif hint is float:
        if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
            yield path, f"found {_described(value)}", f"expected {_WORDS[hint]}"
    elif type(value) is not hint:
        yield path, f"found {_described(value)}", f"expected {_WORDS[hint]}"


def _described(value: object) -> str:
    return described([*value] if isinstance(value, tuple) else value)


def is_optional(hint: Any) -> bool:
    return get_origin(hint) in (UnionType, Union)


_KNOWN: dict[Any, dict[str, Any]] = {}


def field_types(kind: Any) -> dict[str, Any]:
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = {field.name: hints[field.name] for field in fields(kind) if field.init}
    return _KNOWN[kind]


def _narrow_faults(hint: Any, value: Any, path: str) -> Iterator[Fault]:
    inner, only = get_args(hint)
    problems = [*faults(inner, value, path)]
    yield from problems
    if not problems and value is not None and not only.accepts(value):
        yield path, f"found {_described(value)}", f"expected {only.what}"


def _list_faults(hint: Any, value: object, path: str) -> Iterator[Fault]:
    if not isinstance(value, list | tuple):
        yield path, f"found {_described(value)}", "expected a list"
        return
    if hint in _WORDS and hint is not float and all(type(item) is hint for item in value):
        return  # of many numbers each would take its time
    for position, item in enumerate(value):
        yield from faults(hint, item, f"{path}[{position}]")


def _object_faults(hint: Any, value: object, path: str) -> Iterator[Fault]:
    if hint == PAIRS:
        value = dict(value) if isinstance(value, tuple) else value
        hints = dict.fromkeys(value, str) if isinstance(value, dict) else {}
    elif get_origin(hint) is dict:
        hints = dict.fromkeys(value, get_args(hint)[1]) if isinstance(value, dict) else {}
    else:
        hints = field_types(hint)
        value = vars_of(value) if type(value) is hint else value
    if not isinstance(value, dict):
        yield path, f"found {_described(value)}", "expected an object"
        return
    for name in value:
        if name not in hints or not isinstance(name, str):
            found = f"there is no field {quoted(str(name))}"
            yield path, found, f"expected {joined([*map(str, hints)], 'or')}"
    for name, inner in hints.items():
        if name not in value:
            yield path, f"the field '{name}' is missing", ""
        else:
            where = f"{path}.{name}" if path else bare(str(name))
            yield from faults(inner, value[name], where)


def as_record(hint: Any, value: Any) -> Any:
    """Convert a value without faults to its type."""
    if value is None:
        return None
    if is_optional(hint) or get_origin(hint) is Annotated:
        return as_record(get_args(hint)[0], value)
    if hint == PAIRS:
        return tuple(dict(value).items())
    if is_dataclass(hint):
        values = value if isinstance(value, dict) else vars_of(value)
        hints = field_types(hint)
        return hint(**{name: as_record(inner, values[name]) for name, inner in hints.items()})  # type: ignore[operator]
    if get_origin(hint) is dict:
        return {name: as_record(get_args(hint)[1], item) for name, item in value.items()}
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(value) if inner in _WORDS else tuple(as_record(inner, item) for item in value)
    return value


def vars_of(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in field_types(type(record))}


def plain(hint: Any, value: Any) -> Any:
    """Convert a value to what JSON can hold."""
    if value is None:
        return None
    if is_optional(hint) or get_origin(hint) is Annotated:
        return plain(get_args(hint)[0], value)
    if hint == PAIRS:
        return dict(value)
    if is_dataclass(hint):
        hints = field_types(hint)
        return {name: plain(inner, getattr(value, name)) for name, inner in hints.items()}
    if get_origin(hint) is dict:
        return {name: plain(get_args(hint)[1], item) for name, item in value.items()}
    if get_origin(hint) is tuple:
        return [plain(get_args(hint)[0], item) for item in value]
    return value
