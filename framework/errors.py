"""User errors, each with a fix."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from rankslice.framework.wording import on_one_line, quoted

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with the input: where it is, what it is, and how to fix it."""

    where: str
    """File, then the path inside it: ``mapping.json: edge01_gpu[3]``."""
    found: str
    """What was found, as a clause: ``no layer 'conv9'``."""
    expected: str = ""
    """What was expected, or how to fix it."""

    def __str__(self) -> str:
        text = f"{on_one_line(self.where)}: {on_one_line(self.found)}"
        return f"{text}; {on_one_line(self.expected)}" if self.expected else text


class RankSliceError(Exception):
    """The input or the run failed for a reason that the user can fix: no traceback is printed."""

    def __init__(self, *mistakes: Mistake | str) -> None:
        """Take one or more mistakes; a plain string is a message that names no place."""
        self.mistakes = mistakes
        super().__init__("\n".join(str(mistake) for mistake in mistakes))


class InterruptedRunError(RankSliceError):
    """A run that the user interrupted."""


MAX_LISTED = 50
"""Mistakes of one step that are listed; a file may have a million of the same kind."""


def raise_mistakes(mistakes: Iterable[Mistake | str]) -> None:
    """Raise one :class:`RankSliceError` with the mistakes, or return if there are none.

    The first :data:`MAX_LISTED` are listed, the others counted.
    """
    left = iter(mistakes)
    listed = tuple(islice(left, MAX_LISTED))
    more = sum(1 for _ in left)
    if more:
        raise RankSliceError(*listed, f"... and {more} more mistakes")
    if listed:
        raise RankSliceError(*listed)


class CollectedMistakes:
    """The mistakes of several steps, of which each is tried whatever came of the others."""

    def __init__(self) -> None:
        self._mistakes: list[Mistake | str] = []

    def catch(self, step: Callable[[], _T]) -> _T | None:
        """Run a step; return its result, or ``None`` if it failed: its mistakes are kept."""
        try:
            return step()
        except RankSliceError as error:
            self._mistakes.extend(error.mistakes)
            return None

    def raise_all(self) -> None:
        if self._mistakes:  # each step has listed few enough
            raise RankSliceError(*self._mistakes)


_MAX_COMPARED = 100
"""The time of a comparison grows with the product of the lengths."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'X'?`` for the known name closest to ``name``, or an empty string.

    One that differs in upper and lower case alone is the closest.
    """
    if len(name) > _MAX_COMPARED:
        return ""
    names = [other for other in known if len(other) <= _MAX_COMPARED]
    close = [other for other in names if other.casefold() == name.casefold()]
    close = close or difflib.get_close_matches(name, names, n=1)
    return f"did you mean {quoted(close[0])}?" if close else ""
