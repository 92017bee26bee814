"""The model object of a ``.tflite`` file as a JSON object, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankslice.framework.wording import bytes_text, printable
from rankslice.views.content import Table, first_rows
from rankslice.views.inspection_json import plain

FORMAT = "rankslice-object"
VERSION = 2

_MAX_SUBGRAPHS = 10
_MAX_ITEMS = 8
_MAX_LETTERS = 60


def object_to_json(path: Path, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of :func:`read_object` as JSON has it; see ``docs/formats.md``."""
    about = {"file": path.name, "file_bytes": path.stat().st_size}
    return {"format": FORMAT, "version": VERSION, **about, "model": plain(model)}


def object_parts(path: Path, model: Mapping[str, Any]) -> Iterator[Table | str]:
    return _parts(f"{printable(path.name)}: {bytes_text(path.stat().st_size)}", "", model)


def _parts(head: str, before: str, record: Mapping[str, Any]) -> Iterator[Table | str]:
    """Yield the fields of a table, then those that are lists of tables; ``before``: their name."""
    lists = {name: value for name, value in record.items() if _is_tables(value)}
    yield f"{head}, {_text({key: value for key, value in record.items() if key not in lists})}"
    for name, tables in lists.items():
        is_nested = not before and any(map(_is_tables, (v for t in tables for v in t.values())))
        if not is_nested:
            yield from _rows(f"{before}{name}", tables)
            continue
        for number, table in enumerate(tables[:_MAX_SUBGRAPHS]):
            yield ""
            yield from _parts(f"{name}[{number}]", f"{name}[{number}].", table)
        if len(tables) > _MAX_SUBGRAPHS:
            yield f"... and {len(tables) - _MAX_SUBGRAPHS} more {name}; --json FILE has all"


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _rows(title: str, tables: Sequence[Mapping[str, Any]]) -> Iterator[Table | str]:
    names = dict.fromkeys(name for table in tables for name in table)
    used = [name for name in names if any(table.get(name) for table in tables)]
    rows = [
        (str(number), *(_text(record.get(name)) for name in used))
        for number, record in enumerate(tables)
    ]
    yield from first_rows(title, ("#", *used), rows)


def _text(value: Any) -> str:
    if isinstance(value, dict) and "flexbuffer" in value and "hex" in value:
        return _text(value["flexbuffer"])
    if isinstance(value, dict):
        texts = {name: _text(item) for name, item in value.items()}
        return ", ".join(f"{printable(name)}={text}" for name, text in texts.items() if text)
    if isinstance(value, list):
        more = [f"... ({len(value)})"] if len(value) > _MAX_ITEMS else []
        return " ".join([*map(_text, value[:_MAX_ITEMS]), *more])
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _MAX_LETTERS else f"{text[:_MAX_LETTERS]}..."
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
