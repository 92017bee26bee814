"""The generated ``driver.py``: the job of a plan as literals, and one call that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import jinja2

from rankslice.backend.runtime.job import (
    ALL,
    Job,
    Rank,
    Receive,
    Segment,
    Send,
    Tensor,
    Turns,
)
from rankslice.backend.runtime.job.strict import PAIRS, field_types
from rankslice.framework.files.templates import template_text
from rankslice.framework.plan import Plan

_MAX_NAME_LETTERS = 60
_WIDTH = 100
_WITHOUT_NAMES = {Rank: 2, Tensor: 3, Turns: 2, Receive: 1, Segment: 1, Send: 1}
"""How many fields of a record stand without their names."""


class Literal:
    """The Python source of a value: the only kind of text that may enter generated code."""

    def __init__(self, value: str | float | tuple[str, ...] | tuple[float, ...]) -> None:
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


def render_driver(plan: Plan, schedule: str = "") -> str:
    """Return the source of ``driver.py``.

    ``schedule``: of the first frames, ASCII text without quotes and backslashes, for its docstring.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        undefined=jinja2.StrictUndefined,
        finalize=_source,
        keep_trailing_newline=True,
        autoescape=False,  # it is Python, not HTML; _source escapes text
    )
    job = plan.job
    writer = _Writer({rank.rank: _layers(plan, rank.rank) for rank in job.ranks})
    source = writer.source(job, Job, "")
    return environment.get_template("driver.py.j2").render(
        names=_Prose(", ".join([*sorted(writer.names), "main"])),
        job=_Prose(source),
        source=job.source,
        sink=job.sink,
        window=job.window,
        takes_turns=any(rank.turns != ALL for route in job.routes for rank in route.ranks),
        surge_window=job.surge_window or 0,
        schedule=_Prose(schedule),
    )


class _Prose(str):
    """Fixed text, or source made of literals; never anything else from a user's file."""

    __slots__ = ()


def _source(value: Any) -> Any:
    if isinstance(value, (Literal, int, _Prose)):
        return value
    if isinstance(value, (str, tuple)):
        return Literal(value)
    raise TypeError(f"{type(value).__name__} may not enter generated code: {value!r}")


class _Writer:
    def __init__(self, comments: Mapping[int, str]) -> None:
        self._comments = comments
        self.names: set[str] = set()
        """Of the records that were written."""

    def source(self, value: Any, hint: Any, indent: str, before: int = 0) -> str:
        """Return the source of a value of a type.

        ``before``: characters before it on its line, besides the indent, and after it.
        """
        if hint == PAIRS:
            parts = [f"{Literal(name)}: {Literal(text)}" for name, text in value]
            return f"{{{', '.join(parts)}}}"
        if isinstance(value, tuple) and any(map(is_dataclass, value)):
            items = [
                (self.source(record, type(record), f"{indent}    ", 1), record) for record in value
            ]
            return self._joined("(", items, indent, before)
        if not is_dataclass(value):
            return str(value if value is None else Literal(value))
        self.names.add(type(value).__name__)
        fields_of = [(part, None) for part in self._fields(value, f"{indent}    ")]
        return self._joined(f"{type(value).__name__}(", fields_of, indent, before)

    def _fields(self, record: Any, indent: str) -> Iterator[str]:
        hints = field_types(type(record))
        bare = _WITHOUT_NAMES.get(type(record), 0)
        for number, field in enumerate(field for field in fields(record) if field.init):
            value = getattr(record, field.name)
            if number < bare:
                yield self.source(value, hints[field.name], indent, 1)
            elif field.default is MISSING or value != field.default:
                name = f"{field.name}="
                yield name + self.source(value, hints[field.name], indent, len(name) + 1)

    def _joined(
        self, begin: str, items: Sequence[tuple[str, Any]], indent: str, before: int
    ) -> str:
        comments = [self._comments[record.rank] for _, record in items if isinstance(record, Rank)]
        comma = "," if begin == "(" and len(items) == 1 else ""
        line = f"{begin}{', '.join(text for text, _ in items)}{comma})"
        if not comments and "\n" not in line and len(indent) + before + len(line) <= _WIDTH:
            return line
        lines = [begin]
        for number, (text, _) in enumerate(items):
            lines += [f"{indent}    # {comments[number]}"] if comments else []
            lines.append(f"{indent}    {text},")
        return "\n".join([*lines, f"{indent})"])


def _layers(plan: Plan, rank: int) -> str:
    names = [layer for segment in plan.of_rank(rank) for layer in segment.layers]
    layers = [*plan.models_layers(names)]
    if names and not layers:
        return "only cuts and joins tensors"
    if not layers:
        return "only on the route for a surge" if plan.surge else "layers that are not known"
    first, last = (Literal(layers[at][:_MAX_NAME_LETTERS]) for at in (0, -1))
    made = [plan.made_by_name[name] for name in names if name in plan.made_by_name]
    parts = len({layer.origin for layer in made if layer.kind == "part"})
    of_which = f", {parts} of them in part" if parts else ""
    return f"{len(layers)} layer{'s' * (len(layers) > 1)}, {first} to {last}{of_which}"
