"""What a machine may say that wants to do harm, or is out of its mind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

RAW = {"@digits@": "9" * 5000, "@huge@": "1e999", "@deep@": "[" * 100_000, "@nested@": "[" * 60}
HOSTILE: list[Any] = [
    "$(touch owned)",
    "`touch owned`",
    "x;touch owned;'touch owned'\"touch owned\"",
    "x\n  evil: {host: evil}\n- y",
    "../../../owned",
    "/tmp/rankslice-owned",
    "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b",
    "\u202eodd\u2028\ud800[/red][bold]",
    "-oProxyCommand=touch owned",
    "a" * 100_000,
    "",
    "9" * 5000,
    None,
    True,
    -1,
    2**62,
    10**30,
    0.5,
    float("nan"),
    float("-inf"),
    [],
    {},
    [[]],
    {"x": [None]},
    *RAW,
]
WHOLE = [
    "",
    "[]",
    "{",
    "{}",
    "null",
    '"text"',
    "[" * 100_000,
    '{"error": "\\u001b[2J"}',
    "\\",
    "{" * 50,
]


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value of an answer stands, the answer itself included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items if isinstance(value, dict | list | tuple) else ():
        yield from (
            paths_in(inner, (*path, name))
            if isinstance(inner, dict | list | tuple)
            else [(*path, name)]
        )


def with_lie(value: Any, path: tuple[Any, ...], lie: Any) -> Any:
    """Return a value with a lie where a path leads."""
    if not path:
        return lie
    first, *others = path
    if isinstance(value, dict):
        return {**value, first: with_lie(value[first], tuple(others), lie)}
    changed = list(value)
    changed[first] = with_lie(changed[first], tuple(others), lie)
    return changed


def as_text(value: Any) -> str:
    text = json.dumps(value)
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text
