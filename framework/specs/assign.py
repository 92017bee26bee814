"""Which layers each entry of a mapping has: its values understood with the help of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.graph import Graph, constant_layers
from rankslice.framework.mapping import Assignment, Block, LayerPart, Mapping
from rankslice.framework.quantisers import copied_layers, is_quantiser, quantiser_ranks
from rankslice.framework.wording import bare, joined, listed, quoted

_MAX_UNKNOWN = 20
"""Unknown names that are listed; a mapping made for another model has hundreds."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What the layers of a model can be called."""

    model: str
    position: dict[str, int]
    """Of each layer in the graph's order, by its name."""
    maker: dict[str, str]
    """Name of the layer that makes a tensor, by the tensor's name."""
    inputs: frozenset[str]
    files: dict[str, tuple[str, ...]]
    """Layers by the name of their model file, if the model consists of several."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One text of a mapping's value, and the layers that it means."""

    entry: int
    key: str
    where: str
    layers: tuple[str, ...]
    """Empty if the text is not understood."""
    part: LayerPart | None = None
    """If it is a part of them: which."""
    is_size: bool = False
    """Whether the share of the part is a size."""


class _UnknownError(RankSliceError):
    """A text names no layer of the model."""


def assign(mapping: Mapping, graph: Graph) -> Assignment:
    """Return which layers each entry has, in the graph's order, and which are split.

    A text is a layer's name; if there is none of this name, the name of a tensor that a layer
    makes; if it is neither, the name of one of the model's files, for all of its layers; else it
    can be a range ``first..last`` in the graph's order. Every layer must be in one key, as a whole
    or in parts: the parts of the same layers, split in the same way, make a block. Constant layers
    (see :func:`rankslice.framework.graph.constant_layers`) may be in none or in several, since they
    are copied to where they are needed. Layers that only quantise or dequantise may be left out:
    :mod:`rankslice.framework.quantisers` says where they go then.
    """
    names = _Names(
        bare(graph.name),
        {layer.name: index for index, layer in enumerate(graph.layers)},
        {tensor.name: layer.name for layer in graph.layers for tensor in layer.outputs},
        frozenset(tensor.name for tensor in graph.inputs),
        _layers_by_file(graph),
    )
    items, mistakes = _items(mapping, names)
    items, of_splits = _with_splits(items, mapping, names)
    raise_mistakes([*mistakes, *of_splits] if of_splits else ())
    constant = constant_layers(graph)
    count = len(mapping.entries)
    layers_of: list[set[str]] = [set() for _ in mapping.entries]
    for item in items:
        layers_of[item.entry].update(item.layers)
    in_parts = {(item.entry, name) for item in items if item.part for name in item.layers}
    mistakes += _in_several_keys(items, constant)
    unclear = {item.entry for item in items if not item.layers}
    for number, (entry, layers) in enumerate(zip(mapping.entries, layers_of, strict=True)):
        if layers <= constant and number not in unclear:
            found = "the rank has no layers"
            if layers:
                found += " but constant ones, which are copied to where they are needed"
            expected = "give it a layer, or leave the key out"
            mistakes.append(Mistake(f"{mapping.name}: {bare(entry.key)}", found, expected))
    blocks, wrong = _blocks(items, names)
    mistakes += () if mistakes else wrong  # which may come of the others
    placed = {layer: item.entry for item in items for layer in item.layers}
    # A quantiser between layers that are split is split with them.
    placed |= {n: count + at for at, block in enumerate(blocks) for n in block.layers}
    served = quantiser_ranks(graph, placed)
    mistakes += _missing(mapping, graph, {*placed, *served, *copied_layers(graph, placed)})
    raise_mistakes(dict.fromkeys(mistakes))
    layers_of += [{*block.layers} for block in blocks]
    for layer, number in served.items():
        layers_of[number].add(layer)
    ordered = [tuple(sorted(layers, key=names.position.__getitem__)) for layers in layers_of]
    whole = (
        tuple(name for name in layers if (entry, name) not in in_parts)
        for entry, layers in enumerate(ordered[:count])
    )
    return Assignment(
        tuple(whole),
        tuple(
            replace(block, layers=layers)
            for block, layers in zip(blocks, ordered[count:], strict=True)
        ),
    )


def _blocks(items: Sequence[_Item], names: _Names) -> tuple[list[Block], list[Mistake]]:
    """Return the layers that are split, by their first parts."""
    groups: dict[tuple[str, ...], list[_Item]] = {}
    for item in items:
        if item.part and item.layers:
            groups.setdefault(tuple(sorted(item.layers)), []).append(item)
    blocks, mistakes = [], []
    for group in groups.values():
        first = group[0]
        assert first.part
        keys = [item.key for item in group]
        ways = {(item.part.by, item.part.halo) for item in group if item.part}
        if len(ways) > 1:
            found = "its parts are split in different ways"
            mistakes.append(Mistake(first.where, found, "write the same `by` and `halo` in all"))
        elif len(group) == 1 or len({*keys}) < len(keys):
            found = "it is the only part" if len(group) == 1 else "two parts are in one key"
            expected = "expected two or more keys with the same layers, a part in each"
            mistakes.append(Mistake(first.where, found, expected))
        parts = tuple((item.entry, item.part.share) for item in group if item.part)
        layers = tuple(sorted(first.layers, key=names.position.__getitem__))
        halo, has_sizes = first.part.halo, first.is_size
        blocks.append(Block(first.where, layers, first.part.by, halo, parts, has_sizes))
    return blocks, mistakes


def _layers_by_file(graph: Graph) -> dict[str, tuple[str, ...]]:
    files: dict[str, list[str]] = {}
    for layer in graph.layers:
        if layer.part:
            files.setdefault(layer.part.name, []).append(layer.name)
    return {name: tuple(layers) for name, layers in files.items()}


def _items(mapping: Mapping, names: _Names) -> tuple[list[_Item], list[Mistake | str]]:
    items: list[_Item] = []
    mistakes: list[Mistake | str] = []
    unknown: list[Mistake | str] = []
    count = 0
    for number, entry in enumerate(mapping.entries):
        for index, item in enumerate(entry.layers):
            where = f"{mapping.name}: {bare(entry.key)}[{index}]"
            part = item if isinstance(item, LayerPart) else None
            layers: tuple[str, ...] = ()
            try:
                hint = count < _MAX_UNKNOWN
                if isinstance(item, str):
                    layers = _resolve(item, names, where, hint=hint)
                else:
                    resolved = [_resolve(text, names, where, hint=hint) for text in item.layers]
                    layers = tuple(dict.fromkeys(name for inside in resolved for name in inside))
            except _UnknownError as error:
                unknown += error.mistakes[: max(0, _MAX_UNKNOWN - count)]
                count += len(error.mistakes)
            except RankSliceError as error:
                mistakes += error.mistakes
            items.append(_Item(number, entry.key, where, layers, part))
    if count > len(unknown):
        left = count - len(unknown)
        found = f"... and {left} more names of layers that {names.model} does not have"
        unknown.append(Mistake(mapping.name, found))
    return items, mistakes + unknown


def _with_splits(
    items: list[_Item], mapping: Mapping, names: _Names
) -> tuple[list[_Item], list[Mistake | str]]:
    """Return the items with the parts of :attr:`Mapping.splits` instead of these layers."""
    if not mapping.splits:
        return items, []
    number_of = {entry.key: number for number, entry in enumerate(mapping.entries)}
    parts: list[_Item] = []
    mistakes: list[Mistake | str] = []
    for split in mapping.splits:
        try:
            layers = _resolve(split.layer, names, split.where, hint=True)
        except RankSliceError as error:
            mistakes += error.mistakes
            continue
        for key, size in zip(split.keys, split.sizes, strict=True):
            if key not in number_of:
                hint = nearest(key, number_of) or f"the keys are {joined([*map(bare, number_of)])}"
                found = f"{bare(mapping.name)} has no key {quoted(key)}"
                mistakes.append(Mistake(split.where, found, hint))
                continue
            part = LayerPart(layers, split.by, size)
            parts.append(_Item(number_of[key], key, split.where, layers, part, is_size=True))
    split_in = {(item.entry, name) for item in parts for name in item.layers}
    kept: list[_Item] = []
    for item in items:
        is_split_here = item.part is not None  # which is a mistake if it is in the file, too
        left = tuple(n for n in item.layers if is_split_here or (item.entry, n) not in split_in)
        if left or not item.layers:
            kept.append(replace(item, layers=left))
    return kept + parts, mistakes


def _resolve(text: str, names: _Names, where: str, *, hint: bool) -> tuple[str, ...]:
    if layer := _one(text, names):
        return (layer,)
    if text in names.files:
        return names.files[text]
    splits = [(text[:at], text[at + 2 :]) for at in range(len(text)) if text[at : at + 2] == ".."]
    ranges = [ends for ends in splits if all(_one(end, names) for end in ends)]
    if len(ranges) > 1:
        found = f"{quoted(text)} can be read as {len(ranges)} different ranges"
        raise RankSliceError(Mistake(where, found, "name the layers one by one"))
    if ranges:
        first, last = (_one(end, names) for end in ranges[0])
        start, end_at = names.position[first], names.position[last]
        if start > end_at:
            found = f"{quoted(first)} comes after {quoted(last)} in {names.model}"
            raise RankSliceError(Mistake(where, found, "write the earlier layer of a range first"))
        return tuple(names.position)[start : end_at + 1]
    # A text that begins or ends with dots is not a range of two names, but one unknown name.
    ends = next((split for split in splits if all(split)), (text,))
    lacking = [end for end in ends if not _one(end, names)]
    raise _UnknownError(*(_no_layer(name, names, where, hint=hint) for name in lacking))


def _one(name: str, names: _Names) -> str:
    """Return the layer that a name means: its own name comes before that of another's output."""
    return name if name in names.position else names.maker.get(name, "")


def _no_layer(name: str, names: _Names, where: str, *, hint: bool) -> Mistake:
    if not name.strip("."):
        found = f"{quoted(name)} names no layer"
        return Mistake(where, found, "expected a layer's name, or a range `first..last`")
    if name in names.inputs:
        found = f"{quoted(name)} is an input of the model"
        return Mistake(where, found, "expected only layers; leave it out")
    found = f"no layer {quoted(name)} in {names.model}"
    close = nearest(name, {**names.position, **names.maker, **names.files}) if hint else ""
    return Mistake(where, found, close or "`rankslice inspect` lists the layers")


def _in_several_keys(items: list[_Item], constant: frozenset[str]) -> Iterator[Mistake]:
    expected = "keep it in one, or give each of the keys a part of it (AutoDiCE: --horizontal)"
    owners: dict[str, _Item] = {}
    for item in items:
        doubles: dict[str, list[str]] = {}
        for layer in item.layers:
            owner = owners.setdefault(layer, item)
            if owner is item or (owner.part and item.part and {*owner.layers} == {*item.layers}):
                continue
            if (owner.entry != item.entry or owner.part or item.part) and layer not in constant:
                doubles.setdefault(owner.key, []).append(layer)
        for key, layers in doubles.items():
            word, verb = ("layer", "is") if len(layers) == 1 else ("layers", "are")
            found = f"{word} {listed(layers)} {verb} in {bare(key)} too"
            yield Mistake(item.where, found, expected)


def _missing(mapping: Mapping, graph: Graph, mapped: Collection[str]) -> Iterator[Mistake]:
    lacking = [layer for layer in graph.layers if layer.name not in mapped]
    # Quantisers that serve a missing layer get a rank with it.
    missing = [layer.name for layer in lacking if not is_quantiser(layer)]
    missing = missing or [layer.name for layer in lacking]
    if missing:
        model = bare(graph.name)
        found = f"{len(missing)} layers of {model} are in no key: {listed(missing)}"
        if len(missing) == 1:
            found = f"layer {quoted(missing[0])} of {model} is in no key"
        yield Mistake(mapping.name, found, "add what is missing to the lists")
