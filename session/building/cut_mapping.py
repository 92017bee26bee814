"""Slices given by their first layers, as in ``--cuts 89``, instead of a mapping file."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import Board, Platform
from rankslice.framework.specs.core_lists import core_ranges
from rankslice.framework.wording import quoted

_OPTION = "--cuts"
_MAX_DIGITS = 9


def parse_cuts(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as ``40,89,120``.

    Raises:
        RankSliceError: it is none.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS for part in parts):
        expected = "expected numbers of layers, such as 89 or 40,89,120"
        raise RankSliceError(Mistake(_OPTION, f"{quoted(text)} is not a list of numbers", expected))
    return tuple(int(part) for part in parts)


def mapping_of_cuts(
    cuts: Sequence[int], *, share_cores: bool = False
) -> Callable[[Graph, Platform], Mapping]:
    """Return a function that makes a mapping: slices that begin at layer 1 and at these numbers.

    The slices go to the platform's accelerators in order: board by board, on each its cores, then
    its GPUs and NPUs. On ``local`` each slice has a core of its own; with ``share_cores`` cores
    are taken again and again.

    Args:
        cuts: as :func:`rankslice.views.inspection.layer_numbers` counts.
        share_cores: whether several ranks may have the same cores.
    """

    def mapping(graph: Graph, platform: Platform) -> Mapping:
        raise_mistakes(_mistakes(graph, cuts))
        names = [layer.name for layer in graph.layers]
        ends = [*(number - 1 for number in cuts), len(names)]
        slices = [names[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        keys = _keys(platform, len(slices), share_cores)
        entries = zip(keys, slices, strict=True)
        return Mapping(_OPTION, tuple(MappingEntry(key, tuple(part)) for key, part in entries))

    return mapping


def _mistakes(graph: Graph, cuts: Sequence[int]) -> Iterator[Mistake]:
    count = len(graph.layers)
    for number in cuts:
        if not 2 <= number <= count:
            found = f"no slice can begin with layer {number}"
            yield Mistake(_OPTION, found, f"{graph.name} has layers 1 to {count}")
    for before, after in itertools.pairwise(cuts):
        if before >= after:
            yield Mistake(_OPTION, f"{after} follows {before}", "expected ascending numbers")


def _keys(platform: Platform, count: int, share_cores: bool) -> list[str]:
    is_local = platform.name == "local"
    if is_local:
        keys = [f"local_cpu{core}" for core in platform.boards[0].known_cores]
    else:
        keys = _accelerator_keys(platform.boards, count)
    if share_cores:
        rounds = range(1, -(-count // len(keys)) + 1)
        keys = [key if turn == 1 else f"{key}.{turn}" for turn in rounds for key in keys]
    if count > len(keys):
        kind = "cores" if is_local else "accelerators"
        found = f"{count} slices for the {len(keys)} {kind} of {quoted(platform.name)}"
        expected = "give fewer cuts, or --share-cores" if is_local else "give fewer cuts"
        raise RankSliceError(Mistake(_OPTION, found, f"{expected}, or a --mapping"))
    return keys[:count]


def _accelerator_keys(boards: Sequence[Board], count: int) -> list[str]:
    """Return the keys of the first ``count`` accelerators, of fewer if there are not so many.

    Clusters of cores come first, the fastest of them before the others.
    """
    units: list[tuple[Board, str, tuple[int, ...]]] = []
    for board in boards:
        units += ((board, "cpu", cores) for cores in board.cpus)
        units += ((board, unit, ()) for unit in board.gpus_and_npus)
    units = units[:count]
    driven = Counter(board.name for board, _, cores in units if not cores)
    return [
        f"{board.name}_{unit}{_cores(board, cores, driven[board.name]) if cores else ''}"
        for board, unit, cores in units
    ]


def _cores(board: Board, cores: Sequence[int], driving: int) -> str:
    """Leave the board's lowest cores to GPUs and NPUs, unless the cluster would have none left."""
    drivers = sorted(board.cores or ())[:driving]
    left = tuple(core for core in cores if core not in drivers)
    return core_ranges(left or tuple(cores[-1:]))
