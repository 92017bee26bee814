"""Mapping files: JSON text to the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping as Dictionary, Sequence
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.mapping import LayerPart, LayerSplit, Mapping, MappingEntry
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.specs.keys import KEY_PATTERN
from rankslice.framework.wording import bare, described


class _Object(tuple[tuple[str, Any], ...]):
    """The pairs of an object in a file: no key gets lost if it appears twice."""

    __slots__ = ()


_SHAPE = 'expected an object such as {"edge01_cpu0-3": ["conv1", "conv2..pool5"]}'


def read_mapping(path: Path) -> Mapping:
    """Return the mapping that a JSON file holds: its keys in order, each with its layers.

    Keys and layers are taken as written. What they mean is up to
    :func:`rankslice.framework.specs.placement.place_ranks` and
    :func:`rankslice.framework.specs.assign.assign`.
    """
    value = read_json(read_text(path, "a mapping"), bare(path.name), _SHAPE, _Object)
    if not isinstance(value, _Object):
        raise RankSliceError(Mistake(path.name, f"the file holds {described(value)}", _SHAPE))
    return _mapping(value, path.name)


def read_horizontal(path: Path) -> tuple[LayerSplit, ...]:
    """Return the split layers of a JSON file in the form of AutoDiCE.

    Raises:
        RankSliceError: with all mistakes in it.
    """
    from rankslice.framework.specs.mapping_parts import SPLITS_SHAPE, read_splits  # takes its time

    name = bare(path.name)
    value = read_json(read_text(path, "a splits"), name, SPLITS_SHAPE, _Object)
    if isinstance(value, _Object):
        raise_mistakes(_repeated(value, name, "expected every layer once"))
        value = {key: dict(v) if isinstance(v, _Object) else v for key, v in value}
    return read_splits(value, name)


def mapping_of(layers: object) -> Mapping:
    """Return the mapping that a dictionary of layers by key is, in its order."""
    if not isinstance(layers, Dictionary):
        expected = 'expected {"edge01_cpu0-3": ["conv1", "conv2..pool5"]}'
        raise RankSliceError(Mistake("mapping", f"found {described(layers)}", expected))
    raise_mistakes(
        Mistake("mapping", f"found the key {key!r}", "expected the name of an accelerator")
        for key in layers
        if not isinstance(key, str)
    )
    pairs = ((key, list(v) if isinstance(v, tuple) else v) for key, v in layers.items())
    return _mapping(tuple(pairs), "mapping")


def _mapping(pairs: tuple[tuple[str, Any], ...], name: str) -> Mapping:
    if not pairs:
        raise RankSliceError(Mistake(name, "the mapping is empty", _SHAPE))
    expected = "expected every key once; put its layers into one list"
    mistakes = [*_repeated(pairs, name, expected)]
    entries = [
        MappingEntry(key, tuple(_items(layers, f"{name}: {bare(key)}", mistakes)))
        for key, layers in pairs
    ]
    raise_mistakes(mistakes)
    return Mapping(name, tuple(entries))


def _items(layers: object, where: str, mistakes: list[Mistake]) -> Iterator[str | LayerPart]:
    if not isinstance(layers, list):
        found = f"found {described(layers)}"
        mistakes.append(Mistake(where, found, "expected a list of layer names"))
        return
    for index, layer in enumerate(layers):
        try:
            yield layer if isinstance(layer, str) else _part(layer, f"{where}[{index}]")
        except RankSliceError as error:
            mistakes += (one for one in error.mistakes if isinstance(one, Mistake))


def _part(item: object, where: str) -> LayerPart:
    if not isinstance(item, (_Object, Dictionary)):
        found = f"found {described(item)}"
        raise RankSliceError(Mistake(where, found, "expected the name of a layer"))
    from rankslice.framework.specs.mapping_parts import read_part  # takes its time

    if isinstance(item, _Object):
        raise_mistakes(_repeated(item, where, "expected every key once", "."))
    values = {
        key: list(value) if type(value) is tuple else value for key, value in dict(item).items()
    }
    return read_part(values, where)


def mapping_schema() -> dict[str, object]:
    from rankslice.framework.specs.mapping_parts import part_schema  # takes its time

    name = {"type": "string", "description": "a layer, an output tensor, or a range first..last"}
    return {
        "title": "RankSlice mapping",
        "description": "Layers by board and resource; ranks are numbered in the order of the keys.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": {
            "description": "<board>_<resource>, such as edge01_cpu0-3 or edge01_gpu@4;"
            " of ranks that take turns: edge01_gpu*3|edge02_cpu0-3",
            "pattern": KEY_PATTERN,
        },
        "additionalProperties": {
            "type": "array",
            "items": {"anyOf": [name, part_schema()]},
            "minItems": 1,
        },
    }


def _repeated(
    pairs: Sequence[tuple[str, object]], where: str, expected: str, joint: str = ": "
) -> Iterator[Mistake]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            found = f"the key appears {count} times"
            yield Mistake(f"{where}{joint}{bare(key)}", found, expected)
