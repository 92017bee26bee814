"""What programs give to the functions that are named like the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

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

PIXELS = Preprocessing()
"""How images are read by default."""


_REST = Parameter.VAR_POSITIONAL
P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments of other types than its own say, all at once."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        kinds, given = get_type_hints(function), signature(function).bind(*arguments, **options)
        raise_mistakes(
            Mistake(name, f"is {bare(repr(value))}", f"expected {_told(kinds[name])}")
            for name, found in given.arguments.items()
            for value in (found if given.signature.parameters[name].kind is _REST else (found,))
            if not _is_of(kinds[name], value)
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


def _is_of(kind: Any, value: object) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(_is_of(each, value) for each in get_args(kind))
    kind = get_origin(kind) or kind
    takes, _ = _KINDS.get(kind, (kind, ""))
    is_other = (isinstance(value, bool) and kind in (int, float)) or (
        isinstance(value, (str, bytes)) and kind in (Sequence, tuple)
    )
    return isinstance(value, takes) and not is_other


def _told(kind: Any) -> str:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kinds = tuple(get_origin(each) or each for each in kinds if each is not NoneType)
    return joined([_KINDS.get(each, (each, f"a {each.__name__}"))[1] for each in kinds], "or")


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
    check_positive(("size", side) for side in sides or ())
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


def check_positive(numbers: Iterable[tuple[str, float | None]]) -> None:
    """Refuse numbers that are zero or less.

    Args:
        numbers: by option; ``None``: it is not given.

    Raises:
        RankSliceError: with all of them.
    """
    _refuse(numbers, lambda number: not number > 0, "more than 0")


def check_natural(numbers: Iterable[tuple[str, int | None]]) -> None:
    """Refuse numbers below zero, as :func:`check_positive` does those of zero."""
    _refuse(numbers, lambda number: number < 0, "0 or more")


def _refuse(
    numbers: Iterable[tuple[str, float | None]], is_wrong: Callable[[float], bool], expected: str
) -> None:
    raise_mistakes(
        Mistake(option, f"is {number}", f"expected {expected}")
        for option, number in numbers
        if number is not None and is_wrong(number)
    )
