"""Sentences on the route of frames, and on those that were lost, in a run or a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.texts import frames_text

_MAX_NUMBERS = 20


def route_texts(completed: int, on_surge: int, switches: Sequence[Change]) -> Iterator[str]:
    """Yield how many frames took which of two routes, and each change of the route."""
    usual = frames_text(completed - on_surge)
    yield f"{usual} took the normal route, {on_surge} the surge route"
    for switch in switches:
        yield (
            f"{switch.time_s:.2f} s: {switch.route} from frame {switch.frame} on,"
            f" {switch.waiting} waiting: {switch.reason}"
        )


def numbers_text(numbers: Sequence[int], count: int | None = None) -> str:
    """Return the first numbers, and how many more there are, of ``count`` in all."""
    shown = ", ".join(map(str, numbers[:_MAX_NUMBERS]))
    more = (len(numbers) if count is None else count) - _MAX_NUMBERS
    return f"{shown} and {more} more" if more > 0 else shown
