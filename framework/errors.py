"""Mistakes of the user's, told so that they can be mended."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Mistake", "RankSliceError", "nearest", "raise_mistakes"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with the input: where, what, and what to do."""

    place: str
    """File, then the path inside it: ``mapping.json: edge01_gpu[3]``."""
    found: str
    """What stands there, as a clause: ``no layer 'conv9'``."""
    expected: str = ""
    """What would have been right, or what to do about it."""

    def __str__(self) -> str:
        text = f"{self.place}: {self.found}"
        return f"{text}; {self.expected}" if self.expected else text


class RankSliceError(Exception):
    """The input or the run failed for a reason the user can mend: printed without a traceback."""

    def __init__(self, *mistakes: Mistake | str) -> None:
        """Take one or more mistakes; a plain string is a message without a place."""
        self.mistakes = mistakes
        super().__init__("\n".join(str(mistake) for mistake in mistakes))


def raise_mistakes(mistakes: Iterable[Mistake | str]) -> None:
    """Raise one :class:`RankSliceError` with all the mistakes, or return if there are none."""
    found = tuple(mistakes)
    if found:
        raise RankSliceError(*found)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'X'?`` for the known name closest to ``name``, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
