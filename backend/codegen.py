"""The generated ``driver.py``: a plan rendered as Python tables and one call."""

from __future__ import annotations

from typing import Any

import jinja2

from rankslice.backend.runtime.job import ALL
from rankslice.framework.files.templates import template_text
from rankslice.framework.mapping import Placement
from rankslice.framework.plan import Plan

_LONGEST_NAME_IN_COMMENT = 60


class Literal:
    """The Python source of a value: the only kind of text that may enter generated code."""

    def __init__(self, value: str | int | tuple[str, ...] | tuple[int, ...]) -> None:
        """Take a value. Its source is ASCII and one line, whatever the value is."""
        self.value = value

    def __str__(self) -> str:
        """Return the source, in double quotes where that needs no escapes."""
        if isinstance(self.value, tuple):
            parts = [str(Literal(item)) for item in self.value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        source = ascii(self.value)
        if source.startswith("'") and '"' not in source and "\\'" not in source:
            source = f'"{source[1:-1]}"'
        return source


def render_driver(plan: Plan, plan_sha256: str, schedule: str = "") -> str:
    """Return the source of ``driver.py``, which compares the hash of ``plan.json`` at its start.

    ``schedule``: of the first frames, ASCII text without quotes and backslashes, for its docstring.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        undefined=jinja2.StrictUndefined,
        finalize=_source,
        keep_trailing_newline=True,
        autoescape=False,  # it is Python, not HTML; _source escapes text
    )
    return environment.get_template("driver.py.j2").render(
        model=plan.model.name,
        plan_sha256=plan_sha256,
        source=plan.source,
        sink=plan.sink,
        window=plan.window,
        ranks=[_rank(plan, placement) for placement in plan.ranks],
        takes_turns=any(rank.turns != ALL for route in plan.routes for rank in route.ranks),
        surge_window=next((route.window for route in plan.routes[1:]), 0),
        schedule=_Prose(schedule),
        spaces=lambda count: _Prose(" " * count),
    )


class _Prose(str):
    """Fixed text for the docstring; never anything from a user's file."""

    __slots__ = ()


def _source(value: Any) -> Any:
    """Return what the template prints for a value: text only as a literal."""
    if isinstance(value, (Literal, int, _Prose)):
        return value
    if isinstance(value, (str, tuple)):
        return Literal(value)
    raise TypeError(f"{type(value).__name__} may not enter generated code: {value!r}")


def _rank(plan: Plan, placement: Placement) -> dict[str, Any]:
    """Return what the template needs for the block of a rank."""
    return {
        "placement": placement,
        "layers": _layers(plan, placement.rank),
        "ways": [_way(route, placement.rank) for route in plan.routes],
    }


def _layers(plan: Plan, rank: int) -> _Prose:
    """Say which layers a rank has."""
    layers = [layer for segment in plan.of_rank(rank) for layer in segment.layers]
    if not layers:
        return _Prose("only on the route for a surge")
    first, last = (Literal(layers[at][:_LONGEST_NAME_IN_COMMENT]) for at in (0, -1))
    return _Prose(f"{len(layers)} layers, {first} to {last}")


def _way(route: Plan, rank: int) -> dict[str, Any]:
    """Return what a rank does on a route."""
    turns = route.ranks[rank].turns
    return {
        "receives": [each for each in route.channels if each.destination == rank],
        "segments": route.of_rank(rank),
        "sends": [each for each in route.channels if each.source == rank],
        "takes_turns": turns != ALL,
        "turns": turns,
    }
