"""The subgraphs that operators run: branches, loops, functions, initialisation."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.formats.tflite.references import called_subgraphs
from rankslice.frontend.formats.tflite.wire import Table

_MAX_VISITS = 3_000_000
"""Records of subgraphs looked at, all operators together: models need some ten thousand."""


class Bodies:
    """Finds the subgraphs that an operator runs, directly or not."""

    def __init__(self, where: str, subgraphs: Sequence[Table]) -> None:
        self._where = where
        self._calls = [
            frozenset[int]().union(*map(called_subgraphs, subgraph.tables("operators")))
            for subgraph in subgraphs
        ]
        self._sizes = [
            len(subgraph.tables("operators")) + len(subgraph.tables("tensors"))
            for subgraph in subgraphs
        ]
        self._visits_left = _MAX_VISITS

    def of(self, operator: Table) -> tuple[int, ...]:
        """Return the numbers of the subgraphs that an operator runs, ascending."""
        found: set[int] = set()
        pending = set(called_subgraphs(operator))
        while pending:
            number = pending.pop()
            found.add(number)
            pending |= self._calls[number] - found
            self._visits_left -= self._sizes[number] + len(self._calls[number])
            if self._visits_left < 0:
                text = "its operators run each other's subgraphs too often to be followed"
                raise RankSliceError(Mistake(self._where, text, "expected a .tflite model file"))
        return tuple(sorted(found))
