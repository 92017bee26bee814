"""Mapping files: JSON text to the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping as Dictionary
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.mapping import LayerPart, Mapping, MappingEntry
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.specs.keys import KEY_PATTERN
from rankslice.framework.wording import bare, described

_SHAPE = 'expected an object such as {"edge01_cpu0-3": ["conv1", "conv2..pool5"]}'


def read_mapping(path: Path) -> Mapping:
    """Return the mapping that a JSON file holds: its keys in order, each with its layers.

    Keys and layers are taken as written. What they mean is up to
    :func:`rankslice.framework.specs.placement.place_ranks` and
    :func:`rankslice.framework.specs.assign.assign`.
    """
    # Every object is read as a tuple of pairs, so that no key gets lost.
    value = read_json(read_text(path, "a mapping"), bare(path.name), _SHAPE, tuple)
    if not isinstance(value, tuple):
        raise RankSliceError(Mistake(path.name, f"the file holds {described(value)}", _SHAPE))
    return _mapping(value, path.name)


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
    raise_mistakes(_mistakes(pairs, name))
    return Mapping(
        name,
        tuple(MappingEntry(key, tuple(map(_item, layers))) for key, layers in pairs),
    )


def _item(item: Any) -> str | LayerPart:
    if isinstance(item, str):
        return item
    values = dict(item)
    return LayerPart(**{**values, "layers": tuple(values["layers"])})


def mapping_schema() -> dict[str, object]:
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
        "additionalProperties": {"type": "array", "items": name, "minItems": 1},
    }


def _mistakes(pairs: tuple[tuple[str, object], ...], name: str) -> Iterator[Mistake]:
    expected = "expected every key once; put its layers into one list"
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            yield Mistake(f"{name}: {bare(key)}", f"the key appears {count} times", expected)
    for key, layers in pairs:
        where = f"{name}: {bare(key)}"
        if not isinstance(layers, list):
            yield Mistake(where, f"found {described(layers)}", "expected a list of layer names")
            continue
        for index, layer in enumerate(layers):
            if isinstance(layer, (tuple, dict)):
                continue
            if not isinstance(layer, str):
                found = f"found {described(layer)}"
                yield Mistake(f"{where}[{index}]", found, "expected the name of a layer")
