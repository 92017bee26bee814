"""The process in which ``inspect --internals`` loads a model: ``MODEL WANTED FOUND``.

What is found, or why nothing is, goes to the file ``FOUND`` as JSON. Only the ways that the
packages' Python interpreter has are used, so some things stay unseen; they are listed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.backend.runtime.engines.litert_compiled import open_engine as open_compiled
from rankslice.backend.runtime.engines.litert_engine import replaced_operators
from rankslice.backend.runtime.engines.litert_package import LiteRtPackage, find_package, first_line
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Facts, Tensor
from rankslice.backend.runtime.system.processes import bytes_of, memory_of
from rankslice.commands.inspect.internals import (
    Built,
    Internals,
    Mapped,
    Node,
    RuntimeTensor,
    Wanted,
)
from rankslice.framework.graph import dtype_bits
from rankslice.frontend.formats.tflite.object import SubgraphEntry, read_object

_INTERPRETER_UNSEEN = (
    "LiteRT's own list of the execution plan: the order is worked out from what each node reads"
    " and makes, and there may be others",
    "what a delegate holds: its copies of weights, its memory for results inside a partition,"
    " and which kernels it has chosen",
    "the kind of memory that LiteRT notes for a tensor: it is inferred from the address",
    "which operators LiteRT lacks: it names the first one only, and then loads nothing",
    "how long each node takes",
    "memory that LiteRT gives to a tensor in the course of a run: nothing is run here",
)
_COMPILED_UNSEEN = (
    "nodes, tensors and memory of the compiled model: how many operators the accelerator takes"
    " is read from LiteRT's log",
    *_INTERPRETER_UNSEEN[2:],
)
_BODIES_UNSEEN = "the nodes of other subgraphs than the first: these are bodies of control flow"


def _main(model: str, wanted: str, found: str) -> None:
    path = Path(model)
    try:
        record = asdict(_look(path, Wanted(**json.loads(wanted))))
    except ImportError:
        expected = "pip install 'rankslice[litert]'"
        record = {"error": "LiteRT is needed to look inside it", "expected": expected}
    except (JobError, ValueError, RuntimeError) as error:
        record = {"error": first_line(error)}
    Path(found).write_text(json.dumps(record))


def _look(path: Path, wanted: Wanted) -> Internals:
    package = find_package()
    main, *bodies = read_object(path).subgraphs
    plain, mapped = _built(package, path, main, [], only_delegates=True)
    unseen = _COMPILED_UNSEEN if wanted.accelerator else _INTERPRETER_UNSEEN
    delegated = accelerated = None
    by = Path(wanted.delegate).name or "XNNPACK"
    if wanted.accelerator:
        by, accelerated = _compiled(path, wanted, main)
    else:
        delegates = _delegates(package, wanted)
        delegated, _ = _built(package, path, main, delegates, only_delegates=bool(delegates))
    return Internals(
        file=path.name,
        runtime=package.name,
        by=by,
        mapped=mapped,
        subgraphs=1 + len(bodies),
        plain=plain,
        delegated=delegated,
        accelerated=accelerated,
        unseen=(*unseen, _BODIES_UNSEEN) if bodies else unseen,
    )


def _delegates(package: LiteRtPackage, wanted: Wanted) -> list[Any]:
    return [package.load_delegate(wanted.delegate, wanted.options)] if wanted.delegate else []


def _compiled(path: Path, wanted: Wanted, main: SubgraphEntry) -> tuple[str, dict[str, Any]]:
    """Return who runs a compiled model, and how much of it."""
    settings = EngineSettings(
        accelerator=wanted.accelerator,
        options=wanted.options,
        allow_fallback=True,
        facts=Facts(operators=len(main.operators)),
    )
    engine = open_compiled(settings)
    specs = {
        item.number: Tensor(item.name, item.dtype, item.shape)
        for item in main.tensors
        if item.number in (*main.inputs, *main.outputs)
    }
    engine.load(path, [specs[n] for n in main.inputs], [specs[n] for n in main.outputs])
    found = engine.acceleration()
    assert found is not None
    return found.by, found.to_json()


def _built(
    package: LiteRtPackage,
    path: Path,
    main: SubgraphEntry,
    delegates: Sequence[Any],
    *,
    only_delegates: bool,
) -> tuple[Built, Mapped | None]:
    """Build an interpreter and allocate its tensors, with a look before and after."""
    try:
        interpreter = package.interpreter(path, 1, delegates, only_delegates=only_delegates)
        mapped = list(_mappings(path))
        before = {
            item["index"]: _place(interpreter, item, main)[0] for item in _tensors(interpreter)
        }
        resident = memory_of("self", "VmRSS")
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise JobError(f"{package.name} cannot load it: {first_line(error)}") from None
    grown = memory_of("self", "VmRSS")
    tensors = tuple(
        _tensor(interpreter, item, before.get(item["index"]), mapped, main)
        for item in _tensors(interpreter)
    )
    nodes = _nodes(interpreter)
    arena = [item for item in tensors if item.after == "arena" and item.bytes]
    spans = [(item.address or 0, (item.address or 0) + (item.bytes or 0)) for item in arena]
    built = Built(
        nodes=nodes,
        execution_plan=tuple(_plan(nodes)),
        tensors=tensors,
        arena_bytes=_covered(spans),
        arena_tensor_bytes=sum(item.bytes or 0 for item in arena),
        resident_bytes=max(0, grown - resident) if resident and grown else None,
    )
    return built, mapped[0] if mapped else None


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Return how many bytes lie in at least one of the spans."""
    total = reached = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _tensors(interpreter: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = interpreter.get_tensor_details()
    return found


def _dtype(details: dict[str, Any], main: SubgraphEntry) -> str:
    """Return a tensor's type, in the file's word for those that numpy lacks."""
    number = int(details["index"])
    if number < len(main.tensors):
        return main.tensors[number].dtype
    return str(np.dtype(details["dtype"]).name)


def _place(
    interpreter: Any, details: dict[str, Any], main: SubgraphEntry
) -> tuple[int | str, int | None]:
    """Return a tensor's address, or ``none`` or ``unseen``; and its size in bytes."""
    shape = tuple(int(side) for side in details["shape"])
    bits = dtype_bits(_dtype(details, main))
    if not bits:
        # Text and handles have memory of their own kind, and LiteRT crashes when asked for it.
        return "unseen", None
    known = (math.prod(shape) * bits + 7) // 8
    if not shape:
        # Of a tensor without dimensions Python gets the number, not the memory.
        return "unseen", known
    try:
        view = interpreter.tensor(details["index"])()
        return int(view.__array_interface__["data"][0]), int(view.nbytes)
    except ValueError as error:
        return ("none" if "null" in str(error) else "unseen"), known
    except (RuntimeError, TypeError, AttributeError):
        return "unseen", known


def _tensor(
    interpreter: Any,
    details: dict[str, Any],
    before: int | str | None,
    mapped: Sequence[Mapped],
    main: SubgraphEntry,
) -> RuntimeTensor:
    number = int(details["index"])
    place, size = _place(interpreter, details, main)
    is_variable = number < len(main.tensors) and main.tensors[number].is_variable
    first = _memory("none" if before is None else before, mapped, "own")
    later = first if first in ("own", "file") else "variable" if is_variable else "arena"
    return RuntimeTensor(
        number=number,
        name=str(details["name"]),
        dtype=_dtype(details, main),
        shape=tuple(int(side) for side in details["shape"]),
        bytes=size,
        before=first,
        after=_memory(place, mapped, later),
        address=place if isinstance(place, int) else None,
    )


def _memory(place: int | str, mapped: Sequence[Mapped], else_: str) -> str:
    if isinstance(place, str):
        return place
    return "file" if any(part.begin <= place < part.end for part in mapped) else else_


def _nodes(interpreter: Any) -> tuple[Node, ...]:
    try:
        details = interpreter._get_ops_details()
    except AttributeError:  # the method is not public
        return ()
    operators = [node for node in details if node["op_name"] != "DELEGATE"]
    return tuple(
        Node(
            number=int(node["index"]),
            name=str(node["op_name"]),
            inputs=tuple(map(int, node["inputs"])),
            outputs=tuple(map(int, node["outputs"])),
            replaces=tuple(
                sorted(
                    int(operators[place]["index"])
                    for place in replaced_operators(operators, [node])
                )
            )
            if node["op_name"] == "DELEGATE"
            else (),
        )
        for node in details
    )


def _plan(nodes: Sequence[Node]) -> Iterator[int]:
    """Yield the nodes that run: each after those whose results it reads, else the first first."""
    taken = {number for node in nodes for number in node.replaces}
    waiting = [node for node in nodes if node.number not in taken]
    waiting.sort(key=lambda node: min(node.replaces, default=node.number))
    unmade = {tensor for node in waiting for tensor in node.outputs}
    while waiting:
        ready = next((node for node in waiting if not unmade & set(node.inputs)), waiting[0])
        yield ready.number
        waiting.remove(ready)
        unmade -= set(ready.outputs)


def _mappings(path: Path) -> Iterator[Mapped]:
    """Yield where the file is mapped, as Linux tells."""
    try:
        lines = bytes_of("self", "maps").decode(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5] == str(path.resolve()):
            begin, end = (int(text, 16) for text in parts[0].split("-"))
            yield Mapped(begin, end, parts[1])


if __name__ == "__main__":
    _main(*sys.argv[1:])
