"""What engines make of models, printed for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.commands.inspect.fusions import (
    ADDED,
    DROPPED,
    FOLDED,
    FUSED,
    KEPT,
    REPLACED,
    SPLIT,
    STORED,
    Group,
)
from rankslice.commands.inspect.inside import Inside
from rankslice.commands.inspect.optimised import FILE, Optimised
from rankslice.commands.inspect.show import print_parts
from rankslice.commands.inspect.show_internals import internals_parts
from rankslice.commands.inspect.show_object import rows
from rankslice.commands.output import print_line
from rankslice.framework.quantities import share_text
from rankslice.framework.wording import joined, printable

_NAMES = 8


def print_inside(found: Sequence[Inside], console: Console) -> None:
    """Print what engines make of models, one after the other."""
    for number, inside in enumerate(found):
        if number:
            console.print()
        if inside.rank is not None:
            print_line(console, f"rank {inside.rank}: {printable(inside.file)}")
        if inside.litert is not None:
            print_parts(internals_parts(inside.litert), console)
        if inside.onnxruntime is not None:
            print_parts(_parts(inside.onnxruntime), console)


def _parts(found: Optimised) -> Iterator[Table | str]:
    threads = f"{found.threads} thread{'s' if found.threads != 1 else ''}"
    yield f"{printable(found.file)}: {found.runtime}, {printable(found.provider)}, {threads}"
    yield from summary(found)
    if found.frames:
        yield f"time: medians of {frames_text(found.frames)} of zeros"
    groups = [group for group in found.groups if group.after]
    yield from rows(
        "layers and the nodes that replace them",
        ("layers", "nodes", "number", "time"),
        patterns(found, groups),
        lambda row: row,
    )
    places = {node: group for group in groups for node in group.after}
    yield from rows(
        "the nodes that run",
        ("#", "node", "operator", "on", "time", "in the place of"),
        range(len(found.after)),
        lambda node: _node(found, node, places[node]),
    )
    yield ""
    yield "not to be seen:"
    for what in found.unseen:
        yield f"* {printable(what)}"


def summary(found: Optimised) -> Iterator[str]:
    """Yield lines that say how many nodes there are after each stage, and what became of layers."""
    counts = [f"{len(found.before)} layers in the file"]
    counts += [f"{stage.level} {len(stage.nodes)}" for stage in found.stages if stage.level != FILE]
    yield f"nodes by level of optimisation: {' -> '.join(counts)}"
    by_kind: dict[str, list[Group]] = {}
    for group in found.groups:
        by_kind.setdefault(group.kind, []).append(group)
    for kind, words in _WORDS.items():
        groups = by_kind.get(kind, [])
        if groups:
            layers = [number for group in groups for number in group.before]
            nodes = [number for group in groups for number in group.after]
            yield words.format(layers=_count(layers, "layer"), nodes=_count(nodes, "node")) + (
                f": {_some(found, kind, layers, nodes)}" if kind in _NAMED else ""
            )


_WORDS = {
    KEPT: "{layers} kept",
    REPLACED: "{layers} replaced by other operators",
    FUSED: "{layers} fused into {nodes}",
    SPLIT: "{layers} split into {nodes}",
    ADDED: "{nodes} added",
    FOLDED: "{layers} folded, that is computed when the model is loaded",
    STORED: "{layers} of type Constant stored as weights",
    DROPPED: "{layers} dropped",
}
_NAMED = (ADDED, FOLDED, DROPPED)


def _count(numbers: Sequence[int], what: str) -> str:
    return f"{len(numbers)} {what}{'s' if len(numbers) != 1 else ''}"


def _some(found: Optimised, kind: str, layers: Sequence[int], nodes: Sequence[int]) -> str:
    """Return the names of layers, or the operators of nodes that were added."""
    if kind == ADDED:
        return _operators(Counter(found.after[number].op for number in nodes), ", ")
    names = [printable(found.before[number].name) for number in layers[:_NAMES]]
    more = len(layers) - len(names)
    return joined([*names, *([f"{more} more"] if more else [])])


def _operators(counts: Counter[str], separator: str = " + ") -> str:
    """Return operators with their numbers: ``Conv + 2 x Relu``."""
    texts = (f"{n} x {printable(op)}" if n > 1 else printable(op) for op, n in counts.items())
    return separator.join(texts)


def patterns(found: Optimised, groups: Sequence[Group]) -> list[tuple[str, str, str, str]]:
    """Return what stands for what, how often, and its share of the time; the longest first."""
    counts: Counter[tuple[str, str]] = Counter()
    times: dict[tuple[str, str], float] = {}
    for group in groups:
        layers, nodes = found.operators(group)
        pattern = _operators(layers) or f"({ADDED})", _operators(nodes)
        counts[pattern] += 1
        times[pattern] = times.get(pattern, 0) + sum(found.share(n) or 0 for n in group.after)
    ordered = sorted(counts, key=lambda pattern: (-times[pattern], -counts[pattern]))
    return [
        (*pattern, str(counts[pattern]), share_text(times[pattern]) if found.frames else "")
        for pattern in ordered
    ]


def _node(found: Optimised, node: int, group: Group) -> tuple[str, ...]:
    share = found.share(node)
    layers = [printable(found.before[number].name) for number in group.before]
    more = len(layers) - _NAMES
    place = " + ".join([*layers[:_NAMES], *([f"{more} more"] if more > 0 else [])])
    return (
        str(node),
        printable(found.after[node].name),
        printable(found.after[node].op),
        printable(found.ran[node].provider) or "?",
        "" if share is None else share_text(share),
        place or f"({ADDED})",
    )
