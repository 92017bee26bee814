"""What engines make of models, as tables and lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.backend.runtime.figures.operator_rows import OperatorRow
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.specs.core_lists import run_texts
from rankslice.framework.wording import bytes_text, first_of, printable, share_text
from rankslice.session.internals import Internals, Node
from rankslice.session.run_record import accelerated_text
from rankslice.views.content import Table, first_rows

_MAX_RUNS = 8


def internals_parts(internals: Internals) -> Iterator[Table | str]:
    if internals.rank is not None:
        yield f"rank {internals.rank}: {printable(internals.file)}"
    provider, threads = printable(internals.provider), internals.threads
    file, plural = printable(internals.file), "s" if threads != 1 else ""
    yield f"{file}: {internals.runtime}, {provider}, {threads} thread{plural}"
    levels = " -> ".join(f"{level} {nodes}" for level, nodes in internals.levels.items())
    yield f"nodes by level of optimisation: {levels}"
    if internals.accelerated is not None:
        yield printable(accelerated_text(internals.accelerated))
    if internals.kernels:
        yield f"time: means of {frames_text(internals.frames)} of zeros, in a compiled model"
    elif internals.frames:
        yield f"time: medians of {frames_text(internals.frames)} of zeros"
    elif internals.untimed:
        yield f"no times: {printable(internals.untimed)}"
    if internals.nodes:
        yield from _nodes(internals)
    if internals.kernels:
        yield from _kernels(internals.kernels)
    if internals.tensors:
        yield from _tensors(internals)


def _nodes(internals: Internals) -> Iterator[Table | str]:
    total = sum(node.microseconds or 0 for node in internals.nodes)
    kinds: dict[tuple[str, str], list[Node]] = {}
    for node in internals.nodes:
        kinds.setdefault((node.op, node.provider), []).append(node)
    by_time = sorted(kinds.values(), key=lambda nodes: -sum(n.microseconds or 0 for n in nodes))
    totals = [(n[0].op, n[0].provider, str(len(n)), _time(n, total)) for n in by_time]
    yield from first_rows("operators that run", ("operator", "on", "nodes", "time"), totals)
    rows = [
        (
            str(number),
            printable(node.name),
            printable(node.op),
            node.provider,
            _time([node], total),
            _runs(node),
        )
        for number, node in enumerate(internals.nodes)
    ]
    headings = ("#", "node", "operator", "on", "time", "in the place of")
    yield from first_rows("nodes that run", headings, rows)


def _kernels(kernels: Sequence[OperatorRow]) -> Iterator[Table | str]:
    total = sum(row.mean_ms for row in kernels)
    rows = [
        (
            str(number),
            printable(row.operator),
            printable(row.kernel),
            f"{1e3 * row.mean_ms:,.1f} us ({share_text(row.mean_ms / total)})" if total else "",
        )
        for number, row in enumerate(kernels)
    ]
    headings = ("#", "operator", "kernels", "time")
    yield from first_rows("operators of the file, and what computes them", headings, rows)


def _time(nodes: Sequence[Node], total: float) -> str:
    times = [node.microseconds for node in nodes if node.microseconds is not None]
    return f"{sum(times):,.0f} us ({share_text(sum(times) / total)})" if times and total else ""


def _runs(node: Node) -> str:
    """Return the operators that a node replaces: ``0..6 9``."""
    return " ".join(first_of(run_texts(node.replaces, ".."), _MAX_RUNS, "... and {} more runs"))


def _tensors(internals: Internals) -> Iterator[Table | str]:
    where = f"mapped at {internals.mapped}" if internals.mapped else "not mapped, as far as is seen"
    rows = [
        (
            str(tensor.number),
            tensor.name or "(working memory)",
            tensor.dtype,
            "x".join(map(str, tensor.shape)) or "scalar",
            "?" if tensor.bytes is None else bytes_text(tensor.bytes),
            tensor.before,
            tensor.after,
            "" if tensor.address is None else f"{tensor.address:#x}",
        )
        for tensor in internals.tensors
    ]
    headings = ("#", "tensor", "type", "shape", "size", "before", "after", "address")
    yield from first_rows("memory of tensors before and after allocation", headings, rows)
    in_arena = [tensor.bytes or 0 for tensor in internals.tensors if tensor.after == "arena"]
    yield (
        f"the file is {where}; {len(in_arena)} tensors of {bytes_text(sum(in_arena))} take"
        f" {bytes_text(internals.arena_bytes)} of the arena"
    )
