"""What programs give to the functions that are named like the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import chain
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args as args_of,
    get_origin as origin_of,
    get_type_hints,
)

import numpy as np

from rankslice.backend.runtime.options import Preprocessing
from rankslice.commands.planning import MakeMapping
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.specs.read_mapping import mapping_of
from rankslice.framework.wording import bare, joined, quoted
from rankslice.frontend.formats.given_sizes import GivenSizes, given_sizes

MappingSource: TypeAlias = str | Path | Mapping[str, Sequence[str]]
"""A mapping file, or its keys with their layers."""

Sizes: TypeAlias = Mapping[str, int | Sequence[int]]
"""Sizes by the name of a tensor (``{"image": (1, 3, 224, 224)}``) or of a size (``{"n": 8}``)."""

Inputs: TypeAlias = str | Path | Sequence[str | Path]
"""What names a source of frames: a file, a folder, several, or a word such as ``random``."""

Numbers: TypeAlias = float | Sequence[float]
"""One for all channels, or one for each."""

Count: TypeAlias = Annotated[int, 0, "a whole number, 1 or more"]
Natural: TypeAlias = Annotated[int, -1, "a whole number, 0 or more"]
Positive: TypeAlias = Annotated[float, 0, "a number above 0"]
"""Kinds of numbers: above which bound they are, and how they are called."""

PIXELS = Preprocessing()
"""How images are read by default."""


_REST = Parameter.VAR_POSITIONAL
P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments that are not what its types say, all at once."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        kinds = get_type_hints(function, include_extras=True)
        given = signature(function).bind(*arguments, **options)
        raise_mistakes(
            Mistake(name, f"is {bare(repr(value))}", f"expected {joined(wanted, 'or')}")
            for name, found in given.arguments.items()
            for value in (found if given.signature.parameters[name].kind is _REST else (found,))
            if (wanted := _wanted(kinds[name], value))
        )
        return function(*arguments, **options)

    return call


_KINDS: dict[Any, tuple[Any, str]] = {
    bool: ((bool, np.bool_), "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    Path: (PathLike, "a path"),
    Sequence: (Iterable, "a list"),
    tuple: (Sequence, "a list"),
    Mapping: (Mapping, "a dictionary"),
    Callable: (Callable, "a function"),
}
"""By kind of a parameter: what it takes, and how that is called."""


def _wanted(kind: Any, value: object) -> list[str]:
    """Return what a value should have been; nothing if it is of that kind."""
    origin, args = origin_of(kind), args_of(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in args:
            return []
        wanted = [_wanted(each, value) for each in args if each is not NoneType]
        return list(chain.from_iterable(wanted)) if all(wanted) else []
    if origin is Annotated:
        number, bound, told = args
        return _wanted(number, value) or [told] * (not value > bound)
    kind = origin or kind
    takes, told = _KINDS.get(kind, (kind, f"a {kind.__name__}"))
    is_other = (isinstance(value, bool) and kind in (int, float)) or (
        isinstance(value, (str, bytes)) and kind in (Sequence, tuple)
    )
    return [told] * (is_other or not isinstance(value, takes))


def path_of(name: str | Path | None) -> Path | None:
    """Return the path of a file that may not be given."""
    return None if name is None else Path(name)


def mapping_from(source: MappingSource) -> Path | MakeMapping:
    """Return a mapping as the commands take it.

    Raises:
        RankSliceError: it is a dictionary, and not one of keys with their layers.
    """
    if isinstance(source, (str, Path)):
        return Path(source)
    mapping = mapping_of(source)
    return lambda graph, platform: mapping


def sizes_from(shape: Sizes | None, at_most: Sizes | None) -> GivenSizes:
    """Return what is given of sizes that a model leaves open.

    Raises:
        RankSliceError: sizes are no natural numbers, or those of the two contradict each other.
    """
    return given_sizes(_sizes("shape", shape or {}), _sizes("at_most", at_most or {}))


def _sizes(option: str, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    found = {name: (s,) if isinstance(s, int) else tuple(s) for name, s in sizes.items()}
    raise_mistakes(
        Mistake(f"{option} {quoted(name)}", f"found {each}", "expected whole numbers")
        for name, each in found.items()
        if not all(isinstance(size, int) and size >= 0 for size in each)
    )
    return found


def inputs_from(source: Inputs) -> tuple[str, ...]:
    """Return what names the source of frames, as text."""
    names = [source] if isinstance(source, (str, Path)) else source
    return tuple(str(name) for name in names)


def preprocessing_from(
    layout: str,
    size: int | tuple[int, int] | None,
    mean: Numbers,
    scale: Numbers,
    *,
    keep_size: bool = False,
) -> Preprocessing:
    """Return how pixels become values.

    Raises:
        RankSliceError: there is no such layout, or images shall keep their sizes and have others.
    """
    check_choice("layout", layout, ("nchw", "nhwc"))
    if keep_size and size is not None:
        raise RankSliceError(Mistake("size", "cannot be combined with keep_size", "leave one out"))
    sides = (size, size) if isinstance(size, int) else size
    check_least(1, (("size", side) for side in sides or ()))
    return Preprocessing(layout, sides, _numbers(mean), _numbers(scale), keep_size)


def _numbers(given: Numbers) -> tuple[float, ...]:
    return (float(given),) if isinstance(given, (int, float)) else tuple(map(float, given))


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that an option does not know.

    Raises:
        RankSliceError: it is none of those that are known.
    """
    if value not in known:
        expected = nearest(value, known) or f"expected {joined(known, 'or')}"
        raise RankSliceError(Mistake(option, f"found {quoted(value)}", expected))


def check_least(least: int, numbers: Iterable[tuple[str, int]]) -> None:
    """Refuse numbers, by option, that are less.

    Raises:
        RankSliceError: with all of them.
    """
    raise_mistakes(
        Mistake(option, f"is {number}", f"expected {least} or more")
        for option, number in numbers
        if number < least
    )
