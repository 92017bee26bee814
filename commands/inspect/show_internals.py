"""What LiteRT makes of a model, printed for people in the order in which it happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from rankslice.commands.inspect.internals import Built, Internals, Node, RuntimeTensor
from rankslice.commands.inspect.show_object import numbers_text, rows
from rankslice.framework.quantities import bytes_text
from rankslice.framework.specs.cores import run_texts
from rankslice.framework.wording import printable

_ALONE = "the kernels alone"
_NAMES = 8


def internals_parts(found: Internals) -> Iterator[Table | str]:
    """Yield how a model is loaded, built, delegated and given memory, and what is not seen."""
    yield _loaded(found)
    yield _built(found)
    yield from _delegated(found)
    yield from _allocated(found)
    yield ""
    yield "not to be seen from Python:"
    for what in found.unseen:
        yield f"* {what}"


def _loaded(found: Internals) -> str:
    name = printable(found.file)
    if found.mapped is None:
        return f"1. load: {name}; whether it is mapped into memory cannot be seen"
    begin, end = found.mapped.begin, found.mapped.end
    return f"1. load: {name} is mapped at {begin:#x}-{end:#x} {found.mapped.permissions}"


def _built(found: Internals) -> str:
    tensors = sum(1 for tensor in found.plain.tensors if tensor.before != "none" or tensor.name)
    graphs = f"{found.subgraphs} subgraph{'s' if found.subgraphs != 1 else ''}"
    return (
        f"2. build: {found.runtime} has all operators; {graphs}, the first with"
        f" {len(found.plain.nodes)} nodes and {tensors} tensors; execution plan"
        f" {_span(found.plain.execution_plan)}"
    )


def _span(plan: Sequence[int]) -> str:
    """Return numbers of nodes with runs of them shortened: ``0..6 14 9``."""
    texts = run_texts(plan, "..")
    more = len(texts) - _NAMES
    return " ".join([*texts[:_NAMES], *([f"... and {more} more runs"] if more > 0 else [])])


def _delegated(found: Internals) -> Iterator[Table | str]:
    by = printable(found.by)
    if found.delegated is None:
        yield f"3. compile: {_accelerated(found)}"
        return
    built = found.delegated
    delegates = [node for node in built.nodes if node.replaces]
    taken = sum(len(node.replaces) for node in delegates)
    pieces = f"{len(delegates)} partition{'s' if len(delegates) != 1 else ''}"
    yield (
        f"3. delegate: {by} takes {taken} of {len(found.plain.nodes)} nodes, in {pieces};"
        f" execution plan {_span(built.execution_plan)}"
    )
    nodes = {node.number: node for node in built.nodes}
    yield from rows(
        f"execution plan with {by}",
        ("#", "node", "inputs", "outputs", "in the place of"),
        [nodes[number] for number in built.execution_plan],
        _node,
    )


def _node(node: Node) -> tuple[str, ...]:
    tensors = (numbers_text(node.inputs), numbers_text(node.outputs))
    return str(node.number), printable(node.name), *tensors, _span(node.replaces)


def _accelerated(found: Internals) -> str:
    record = found.accelerated or {}
    by = printable(found.by)
    if record.get("operators") is None:
        return f"{by} does not report which operators it runs"
    text = f"{by} takes {record['operators']} of {record['of']} operators"
    if record["partitions"] is not None:
        text += f", in {record['partitions']} partition{'s' if record['partitions'] != 1 else ''}"
    others = ", ".join(map(printable, record["others"]))
    return f"{text}; on the CPU: {others}" if others else text


def _allocated(found: Internals) -> Iterator[Table | str]:
    alone = {tensor.number: tensor for tensor in found.plain.tensors}
    shown = found.delegated or found.plain
    by = _ALONE if found.delegated is None else printable(found.by)
    # The delegate may do without working memory that kernels ask for.
    own = {tensor.number: tensor for tensor in shown.tensors}
    entries = [(alone.get(number), own.get(number)) for number in sorted({*alone, *own})]
    yield from rows(
        f"tensors, allocated with {by}",
        ("#", "tensor", "type", "shape", "size", "before", "after", "address", f"with {_ALONE}"),
        entries,
        _tensor,
    )
    yield f"4. allocate: {_arena(_ALONE, found.plain)}"
    if found.delegated is not None:
        yield f"   {_arena(by, found.delegated)}"


def _tensor(pair: tuple[RuntimeTensor | None, RuntimeTensor | None]) -> tuple[str, ...]:
    alone, own = pair
    tensor = own or alone
    assert tensor is not None
    return (
        str(tensor.number),
        printable(tensor.name) or "(working memory)",
        tensor.dtype,
        "x".join(map(str, tensor.shape)) or "scalar",
        "?" if tensor.bytes is None else bytes_text(tensor.bytes),
        own.before if own else "",
        own.after if own else "",
        f"{own.address:#x}" if own and own.address is not None else "",
        alone.after if alone else "",
    )


def _arena(by: str, built: Built) -> str:
    held = sum(1 for tensor in built.tensors if tensor.after == "arena")
    none = sum(1 for tensor in built.tensors if tensor.after == "none")
    text = (
        f"with {by}, {held} tensors of {bytes_text(built.arena_tensor_bytes)} take"
        f" {bytes_text(built.arena_bytes)} of the arena"
    )
    if none:
        text += f", {none} without memory of LiteRT's"
    if built.resident_bytes is not None:
        text += f"; the process grew by {bytes_text(built.resident_bytes)}"
    return text
