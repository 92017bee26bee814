"""What makes functions of records of options commands, and functions that programs call."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, getdoc, signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from rankslice.framework.errors import CollectedMistakes, Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.output_file import STDOUT, check_output, is_null
from rankslice.framework.option_records import (
    MisuseError,
    Option,
    arguments_of,
    check_together,
    converted,
    options_of,
    records_in,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")

_CALLED: dict[bool, Callable[[Option], str]] = {
    True: lambda option: " ".join(option.about.get("typed_as", [option.flag])),
    False: lambda option: option.name,
}
"""How messages name an option: whether it was typed, or comes from a program."""


def function(implementation: Callable[..., _R]) -> Callable[..., _R]:
    """Return a function whose records' fields are keyword arguments; a record is taken, too.

    All arguments are checked as the command line's are; all mistakes are raised at once.
    """

    @wraps(implementation)
    def call(*positional: Any, **named: Any) -> _R:
        options = options_of(implementation)
        values = _values_of_program(options, implementation, positional, named)
        in_order, by_name = arguments_of(implementation, values)
        return implementation(*in_order, **by_name)

    options = options_of(implementation)
    call.__signature__ = _flat_signature(options)  # type: ignore[attr-defined]
    call.__doc__ = _flat_doc(implementation, options)
    return call


def _flat_signature(options: Sequence[Option]) -> Signature:
    """Return the signature for programs: the fields of records are keyword arguments."""
    parameters = []
    for option in options:
        is_given = option.usual is MISSING or option.position is Parameter.VAR_POSITIONAL
        default = Parameter.empty if is_given else option.usual
        parameters.append(Parameter(option.name, option.position, default=default))
    return Signature(sorted(parameters, key=lambda parameter: parameter.kind))


def _flat_doc(implementation: Callable[..., Any], options: Sequence[Option]) -> str:
    """Return the documentation for programs, with what records say of their fields."""
    lines = [f"    {option.name}: {option.help}" for option in options if option.about]
    text = getdoc(implementation) or ""
    if not lines:
        return text
    main, raises, end = text.partition("\n\nRaises:")
    return "\n".join([main, "", "Args:", *lines]) + raises + end


def _values_of_program(
    options: Sequence[Option],
    implementation: Callable[..., Any],
    positional: Sequence[Any],
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the value of each option, of the type of its field.

    Raises:
        RankSliceError: with all that is wrong.
    """
    names = {option.name for option in options}
    records = {name: value for name, value in named.items() if name not in names}
    flat = {name: value for name, value in named.items() if name in names}
    known = signature(implementation).parameters
    if unknown := [name for name in records if name not in known]:
        raise TypeError(f"{implementation.__name__}() has no argument {unknown[0]!r}")
    owners = records_in(records.values())
    arguments = _flat_signature(options).bind(*positional, **flat).arguments
    values: dict[str, Any] = {}
    mistakes = CollectedMistakes()
    for option in options:
        owner = owners.get(option.owner)
        values[option.name] = option.usual if owner is None else getattr(owner, option.field)
        if option.name in arguments and arguments[option.name] is not option.usual:
            take = partial(_of_program, option, arguments[option.name])
            values[option.name] = mistakes.catch(take)
    mistakes.raise_all()
    values = check_values(options, values, is_typed=False)
    return {**values, **records}


def _of_program(option: Option, value: Any) -> Any:
    kind = option.kind
    if option.position is Parameter.VAR_POSITIONAL:
        return tuple(converted(item, kind, option.name) for item in value)
    return converted(value, kind, option.name)


def check_values(
    options: Sequence[Option], values: dict[str, Any], *, is_typed: bool
) -> dict[str, Any]:
    """Check the values of all options; return them, with the files that shall be written.

    Raises:
        MisuseError: a value is out of bounds, or one of its option's words.
        RankSliceError: options contradict each other, or a file cannot be written.
    """
    spelled = _CALLED[is_typed]
    try:
        raise_mistakes(
            mistake
            for option in options
            if option.about and values[option.name] is not option.usual
            for mistake in option.mistakes(values[option.name], spelled(option))
        )
    except RankSliceError as error:
        raise MisuseError(*error.mistakes) from None
    known = [option for option in options if option.about]
    check_together(known, values, spelled)
    values = {**values}
    for option in known:
        writes, file, called = option.about.get("writes"), values[option.name], spelled(option)
        if writes is not None and writes.is_checked and file is not None:
            checked = check_output(file, called, writes.kind, may_be_stream=writes.may_be_stream)
            values[option.name] = checked
    _refuse_shared_files(known, values, spelled)
    return values


def _refuse_shared_files(
    options: Sequence[Option], values: Mapping[str, Any], spelled: Callable[[Option], str]
) -> None:
    """Raise if an option names a file to write that another option names, too.

    Results would be lost, or an input.
    """
    named = [(option, str(value)) for option in options for value in _files_of(values[option.name])]
    for (option, name), (other, other_name) in itertools.combinations(named, 2):
        are_written = ["writes" in one.about for one in (option, other)]
        # 'probe --check F' writes no platform file, whatever name that would have.
        is_sure = all(are_written) or not any(
            values[one.name] == one.usual for one in (option, other)
        )
        if Path(name) == STDOUT and not all(are_written):  # for what is read it is standard input
            continue
        if any(are_written) and is_sure and _is_one_file(name, other_name):
            problem = f"is named by both {spelled(option)} and {spelled(other)}"
            place = "standard output" if Path(name) == STDOUT else name
            raise RankSliceError(Mistake(place, problem, "expected a separate file for each"))


def _files_of(value: Any) -> Sequence[Any]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in values if type(item) is str or isinstance(item, Path)]


def _is_one_file(name: str, other: str) -> bool:
    is_same = name == other or os.path.realpath(name) == os.path.realpath(other)
    return is_same and not is_null(Path(name))


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line."""

    name: str
    shell: Callable[..., Any]
    """What shows progress and results, and writes files. If it has a parameter ``typed``, it gets
    the names of the options that were typed."""
    function: Callable[..., Any] | None
    """What it calls: ``shell`` takes it as ``call``, with its options filled in."""
    examples: tuple[str, ...]

    @property
    def options(self) -> list[Option]:
        """All that can be typed; an option of both is one."""
        of_function = options_of(self.function) if self.function else []
        by_name: dict[str, Option] = {}
        for option in (*of_function, *options_of(self.shell)):
            if option.about and not option.about.get("is_for_programs"):
                by_name.setdefault(option.name, option)
        return [*by_name.values()]

    def run(self, texts: Mapping[str, Any]) -> None:
        """Run the command with what was typed, by option: texts, or whether a switch is on.

        Raises:
            RankSliceError: it fails, or something of it makes no sense.
        """
        options = self.options
        values: dict[str, Any] = {}
        mistakes = CollectedMistakes()
        for option in options:
            text = texts.get(option.name)
            if text is None:
                if option.usual is MISSING or option.position is Parameter.VAR_POSITIONAL:
                    raise MisuseError(Mistake(option.flag, "is missing"))
                values[option.name] = option.usual
            elif option.is_switch:
                values[option.name] = text
            else:
                values[option.name] = mistakes.catch(partial(option.read, text))
        try:
            mistakes.raise_all()
        except RankSliceError as error:
            raise MisuseError(*error.mistakes) from None
        values = check_values(options, values, is_typed=True)
        typed = {name for name, text in texts.items() if text is not None}
        in_order, by_name = arguments_of(self.shell, {**values, "typed": typed})
        if self.function is not None:
            rest, filled = arguments_of(self.function, values)
            by_name["call"] = partial(self.function, *rest, **filled)
        self.shell(*in_order, **by_name)


LOADED: dict[str, Command] = {}
"""By name: the commands whose modules have been imported."""


def command(
    name: str, *examples: str, calls: Callable[..., Any] | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that makes a function a command.

    Args:
        name: its name.
        examples: the arguments of command lines with which its help ends.
        calls: a :func:`function` whose options it has, too; it gets that as ``call``.
    """
    implementation = getattr(calls, "__wrapped__", None) if calls is not None else None

    def add(shell: Callable[_P, _R]) -> Callable[_P, _R]:
        LOADED[name] = Command(name, cast("Callable[..., Any]", shell), implementation, examples)
        return shell

    return add
