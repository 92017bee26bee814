"""Options of commands: fields of records, with what is said of their values.

A record of options is a frozen dataclass. The metadata of its fields, a mapping, may have

``help``
    what the option means, or what returns that; without it, a field is none;
``kind``
    what reads a value from text, or a tuple of the values there are; ``None``: a switch;
``many``
    instead, of an option that may be given several times: what reads all of its texts;
``name``
    for programs, if it is not that of the field; with dashes, it is that of the command line;
``least``, ``most``
    bounds of each number in the value;
``excludes``
    names of options that mean nothing beside it; ``needs``: of one without which it means nothing;
``below``, ``above``, ``up_to``
    name of an option whose value its own is less than, more than, or not more than;
``bare``
    the text that it means without a value, and a pattern of what may be its value;
``writes``
    which file it names, to be written: :class:`Writes`;
``is_executed``
    that it names what is executed, or how ssh is: never taken from a file of options;
``is_argument``, ``is_internal``, ``is_for_programs``, ``has_both``
    that it stands without its name, is for no user, cannot be typed, has a switch for both values;
``typed_as``
    words, the name of another option and a value, that stand for a switch;
``alias``, ``metavar``, ``shown``
    another name, how a value is called, and how the default is shown.

:mod:`rankslice.backend.runtime.options` has fields like these, and imports nothing of this.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from inspect import Parameter, signature
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.files.output_file import Kind
from rankslice.framework.wording import bare, joined, quoted

_T = TypeVar("_T")


class MisuseError(RankSliceError):
    """A value that its option does not take."""


@dataclass(frozen=True, slots=True)
class Writes:
    """A file that an option names and a command writes."""

    kind: Kind | None = None
    """Of the files that may be replaced; ``None``: any ordinary file."""
    may_be_stream: bool = True
    is_checked: bool = True
    """Before the command begins; else it checks the file itself."""


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the words of a list, without empty ones."""
    return tuple(word for word in text.split(",") if word)


def accelerator_keys(text: str) -> tuple[str, ...]:
    from rankslice.framework.specs.keys import split_keys

    return split_keys(text, "--accelerators")


def about(text: str, kind: Any = None, **more: Any) -> Mapping[str, Any]:
    return {"help": text, "kind": kind, **more}


def option(usual: _T, text: str, kind: Any = None, **more: Any) -> _T:
    """Return a field of a record: its default, its help, and how text is read."""
    value: _T = field(default=usual, metadata=about(text, kind, **more))
    return value


def like(record: type, name: str, **changes: Any) -> Any:
    """Return a field like another record's; ``usual``: its default."""
    of = next(member for member in fields(record) if member.name == name)
    usual = changes.pop("usual", of.default)
    return field(default=usual, metadata={**of.metadata, **changes})


@dataclass(frozen=True, slots=True)
class Offered:
    """Which fields of a record a command offers: in ``Annotated``, beside the record."""

    names: tuple[str, ...] = ()
    """Empty: all but those that are internal, or left out."""
    without: tuple[str, ...] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a command says otherwise of fields; of ``usual`` too, the default."""

    def about(self, name: str, metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the metadata of an offered field; ``None``: it is not offered."""
        metadata = {**metadata, **self.changes.get(name, {})}
        is_offered = name in self.names if self.names else not metadata.get("is_internal")
        if "help" not in metadata or name in self.without or not is_offered:
            return None
        return metadata


def offered(*names: str, without: Sequence[str] = (), **changes: Mapping[str, Any]) -> Offered:
    """Select the fields that a command offers, with changes of their metadata."""
    return Offered(names, tuple(without), changes)


@dataclass(frozen=True, slots=True)
class Option:
    """One option, of whatever record."""

    name: str
    usual: Any
    """:data:`dataclasses.MISSING`: it must be given."""
    about: Mapping[str, Any]
    """Empty: it is a parameter for programs alone."""
    owner: Any
    """The record or the function that has it, and its name there."""
    field: str
    position: Any = Parameter.KEYWORD_ONLY
    """The kind of parameter that it is for programs."""

    @property
    def kind(self) -> Any:
        """The type of its value, or of one if there are several positional ones; ``Any`` if it is
        imported for type checkers alone.
        """
        if isinstance(self.owner, type):
            return get_type_hints(self.owner)[self.field]
        return _annotation(self.owner, signature(self.owner).parameters[self.field])

    @property
    def help(self) -> str:
        text = self.about["help"]
        return str(text() if callable(text) else text)

    @property
    def is_switch(self) -> bool:
        return self.about["kind"] is None and "many" not in self.about

    @property
    def is_argument(self) -> bool:
        return bool(self.about.get("is_argument"))

    @property
    def is_negated(self) -> bool:
        """Whether a switch is usually on, so that the command line has ``--no-...``."""
        return self.is_switch and self.usual is True and not self.about.get("has_both")

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        if self.is_argument:
            return str(self.about.get("metavar") or self.name.upper())
        name = self.name.removesuffix("_s").replace("_", "-")
        return f"--no-{name}" if self.is_negated else f"--{name}"

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value that texts of the command line mean.

        Raises:
            MisuseError: they mean none.
        """
        kind, many = self.about["kind"], self.about.get("many")
        if "bare" in self.about and texts[-1].lower() == "true":  # in a file of options
            texts = [self.about["bare"][0]]
        try:
            if many is not None:
                return many(texts)
            return texts[-1] if isinstance(kind, tuple) else kind(texts[-1])
        except ValueError as error:
            wanted = {int: "a whole number", float: "a number"}.get(kind)
            found = f"{quoted(texts[-1])} is not {wanted}" if wanted else str(error)
            raise MisuseError(Mistake(self.flag, found)) from None

    def mistakes(self, value: Any, name: str) -> Iterator[Mistake]:
        """Check a value of the right type: its words and its bounds."""
        if value is None:
            return
        known = self.about.get("kind")
        if isinstance(known, tuple) and value not in known:
            expected = nearest(str(value), known) or f"expected {joined(known, 'or')}"
            yield Mistake(name, f"found {quoted(str(value))}", expected)
        least, most = self.about.get("least", -math.inf), self.about.get("most", math.inf)
        for number in _numbers(value):
            is_finite = isinstance(number, int) or math.isfinite(number)
            if not (is_finite and least <= number <= most):
                shown = str(number) if isinstance(number, int) else f"{number:g}"
                yield Mistake(name, f"is {shown}", f"expected {_bounds(least, most)}")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def _bounds(least: float, most: float) -> str:
    if math.isinf(least):
        return "a finite number"
    return f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:g}"


def is_record(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and is_dataclass(kind)
        and any("help" in member.metadata for member in fields(kind))
    )


def options_of(function: Callable[..., Any]) -> list[Option]:
    """Return the options of a function, those of its records among them, and other parameters."""
    options: list[Option] = []
    for name, parameter, kind, selection, said in _parameters(function):
        usual = MISSING if parameter.default is Parameter.empty else parameter.default
        if is_record(kind):
            options += _of_record(kind, selection, None if usual is MISSING else usual)
        else:
            usual = () if parameter.kind is Parameter.VAR_POSITIONAL else usual
            flat = said.get("name", name)
            options.append(Option(flat, usual, said, function, name, parameter.kind))
    return options


def _parameters(
    function: Callable[..., Any],
) -> Iterator[tuple[str, Parameter, Any, Offered, Mapping[str, Any]]]:
    """Yield each parameter: name, itself, type, which fields it offers, and its metadata."""
    for name, parameter in signature(function).parameters.items():
        kind = _annotation(function, parameter)
        extras: Sequence[Any] = ()
        if get_origin(kind) is Annotated:
            kind, *extras = get_args(kind)
        selection = next((extra for extra in extras if isinstance(extra, Offered)), Offered())
        said = next((extra for extra in extras if isinstance(extra, Mapping)), {})
        yield name, parameter, kind, selection, said


def _annotation(function: Callable[..., Any], parameter: Parameter) -> Any:
    """Return a parameter's annotation; ``Any`` if it has names for type checkers alone."""
    text = parameter.annotation
    if not isinstance(text, str):
        return text
    try:
        return eval(text, function.__globals__)  # as typing.get_type_hints does
    except NameError:
        return Any


def _of_record(record: type, selection: Offered, usual: Any = None) -> Iterator[Option]:
    for member in fields(record):
        nested = _nested(member)
        if nested is not None:
            yield from _of_record(nested, selection)
            continue
        said = selection.about(member.name, member.metadata)
        if said is not None:
            value = member.default if usual is None else getattr(usual, member.name)
            value = said.get("usual", value)
            yield Option(said.get("name", member.name), value, said, record, member.name)


def _nested(member: Any) -> type | None:
    """Return the record that is a field's value."""
    factory = member.default_factory
    return factory if is_record(factory) else None


def records_in(values: Iterable[Any]) -> dict[type, Any]:
    """Return the records among some values, and those in their fields, by type."""
    records: dict[type, Any] = {}
    for value in values:
        if is_record(type(value)):
            records[type(value)] = value
            records |= records_in(getattr(value, member.name) for member in fields(value))
    return records


def arguments_of(
    function: Callable[..., Any], values: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments for a function, by position and name; records are filled from the values."""
    rest: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter, kind, selection, said in _parameters(function):
        flat = said.get("name", name)
        if is_record(kind):
            base = values.get(name)
            named[name] = _made(kind, selection, values, base if isinstance(base, kind) else None)
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            rest = list(values.get(flat, ()))
        elif flat in values:
            named[name] = values[flat]
    return rest, named


def _made(record: Any, selection: Offered, values: Mapping[str, Any], base: Any) -> Any:
    changes: dict[str, Any] = {}
    for member in fields(record):
        nested = _nested(member)
        if nested is not None:
            inner = None if base is None else getattr(base, member.name)
            changes[member.name] = _made(nested, selection, values, inner)
            continue
        said = selection.about(member.name, member.metadata)
        if said is not None and said.get("name", member.name) in values:
            changes[member.name] = values[said.get("name", member.name)]
    return record(**changes) if base is None else replace(base, **changes)


class _OtherTypeError(Exception):
    """A value is of another type than those that are listed."""


_TYPES: dict[Any, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    Path: (PathLike, "a path"),
    Mapping: (Mapping, "a dictionary"),
    Callable: (Callable, "a function"),
}
"""By type of an option: what programs may give, and how that is called."""


def converted(value: Any, kind: Any, name: str) -> Any:
    """Return a program's value as a field of a type has it.

    A text is a path where one is wanted, and a single value is a tuple where that is wanted.

    Raises:
        RankSliceError: it is of another type.
    """
    try:
        return _converted(value, kind)
    except _OtherTypeError as error:
        found = f"is {bare(repr(value))}"
        raise RankSliceError(Mistake(name, found, f"expected {joined(error.args, 'or')}")) from None


def _converted(value: Any, kind: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return _converted(value, args[0])
    if origin in (Union, UnionType):
        return _one_of(value, args)
    if origin is Literal:
        return _converted(value, str)
    if origin is tuple or origin in (Sequence, list):
        return _items(value, args, kind)
    kind = origin or kind
    takes, called = _TYPES.get(kind, (kind, f"a {getattr(kind, '__name__', kind)}"))
    if kind is bool and type(value).__module__ == "numpy" and "bool" in type(value).__name__:
        return bool(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is str and isinstance(value, PathLike):
        return fspath(value)
    if not isinstance(value, takes) or (isinstance(value, bool) and kind in (int, float)):
        raise _OtherTypeError(called)
    return kind(value) if kind in (int, float) else value


def _one_of(value: Any, kinds: Sequence[Any]) -> Any:
    if value is None and NoneType in kinds:
        return None
    if any(isinstance(kind, type) and type(value) is kind for kind in kinds):
        return value
    wanted: list[str] = []
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _converted(value, kind)
            except _OtherTypeError as error:
                wanted += error.args
    raise _OtherTypeError(*wanted)


def _items(value: Any, args: Sequence[Any], kind: Any) -> tuple[Any, ...]:
    """Return the items of a list as they should be; a single one stands for a list of it."""
    is_fixed = get_origin(kind) is tuple and args[-1] is not Ellipsis
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        value = (value,) * (len(args) if is_fixed else 1)
    items = tuple(value)
    if is_fixed and len(items) != len(args):
        raise _OtherTypeError(f"{len(args)} values")
    try:
        return tuple(_converted(item, args[0]) for item in items)
    except _OtherTypeError as error:
        raise _OtherTypeError(*error.args, "a list of such") from None


def check_together(
    options: Sequence[Option], values: Mapping[str, Any], spelled: Callable[[Option], str]
) -> None:
    """Refuse options that mean nothing beside, or without, one another.

    Raises:
        RankSliceError: with all mistakes.
    """
    by_name = {option.name: option for option in options}
    chosen = [option for option in options if values[option.name] != option.usual]
    names = {option.name for option in chosen}
    raise_mistakes(
        Mistake(
            spelled(by_name[other]), f"cannot be combined with {spelled(option)}", "leave one out"
        )
        for option in chosen
        for other in option.about.get("excludes", ())
        if other in names
    )
    raise_mistakes(
        Mistake(spelled(option), f"is given without {needed}", f"also give {needed}")
        for option in chosen
        if (other := option.about.get("needs")) and other not in names and other in by_name
        for needed in [spelled(by_name[other])]
    )
    raise_mistakes(_disorder(options, values, spelled))


_ORDERS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "below": (operator.lt, "a smaller value"),
    "above": (operator.gt, "a larger value"),
    "up_to": (operator.le, "no larger value"),
}


def _disorder(
    options: Sequence[Option], values: Mapping[str, Any], spelled: Callable[[Option], str]
) -> Iterator[Mistake]:
    """Check the order of values that must be less or more than those of other options."""
    by_name = {option.name: option for option in options}
    for option in options:
        for order, (holds, expected) in _ORDERS.items():
            other = by_name.get(option.about.get(order, ""))
            if other is None or values[option.name] is None or values[other.name] is None:
                continue
            value, limit = values[option.name], values[other.name]
            if not holds(value, limit):
                found = f"is {value:g}, and {spelled(other)} {limit:g}"
                yield Mistake(spelled(option), found, f"expected {expected}")
