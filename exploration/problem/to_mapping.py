"""From an assignment of layers to a mapping."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from rankslice.exploration.problem.problem import Problem
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Graph, constant_layers
from rankslice.framework.quantisers import copied_layers


def mapping_of(problem: Problem, assignment: Sequence[int]) -> dict[str, list[str]]:
    """Return a mapping, key to layers, that ``rankslice build`` takes as it is.

    Keys stand in the order in which a frame reaches them; that of devices in turn names all of
    them: ``edge02_gpu*3|edge03_cpu0-3``. Layers that follow each other in the model become a range
    ``first..last``.

    Args:
        problem: made of a graph.
        assignment: (layers,) number of each layer's device or team.

    Raises:
        RankSliceError: the problem has no graph.
    """
    if problem.graph is None:
        raise RankSliceError(Mistake("mapping", "the problem was made without a model"))
    where = _with_followers(problem.graph, dict(zip(problem.layers, assignment, strict=True)))
    mapping: dict[str, list[str]] = {problem.key_of(int(number)): [] for number in assignment}
    for number, names in _runs(where):
        mapping[problem.key_of(number)] += _as_text(names)
    return mapping


_NOWHERE = -1
"""Device of a dequantiser: it stands in no key, and no range may have it."""


def _with_followers(graph: Graph, device_of: dict[str, int]) -> list[tuple[str, int]]:
    """Return all layers of a graph with their devices; unused layers follow their neighbours."""
    constant, copied = constant_layers(graph), copied_layers(graph, ())
    placed = []
    last = next(iter(device_of.values()))
    for layer in graph.layers:
        if layer.name in constant:  # may be in a range or not
            continue
        if layer.name not in copied:
            last = int(device_of.get(layer.name, last))
        placed.append((layer.name, _NOWHERE if layer.name in copied else last))
    return placed


def _runs(where: Iterable[tuple[str, int]]) -> Iterator[tuple[int, list[str]]]:
    """Yield devices with names of layers that follow each other in the model."""
    for device, group in itertools.groupby(where, key=lambda pair: pair[1]):
        if device != _NOWHERE:
            yield device, [name for name, _ in group]


def _as_text(names: list[str]) -> list[str]:
    """Return a range; single names where dots in them could be taken for one."""
    if len(names) < 2 or any(".." in name for name in (names[0], names[-1])):
        return names
    return [f"{names[0]}..{names[-1]}"]
