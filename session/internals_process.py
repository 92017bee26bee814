"""The process in which ``inspect --internals`` loads a model: ``MODEL REQUEST ANSWER``.

What the engine makes of it, or why nothing, goes to the file ``ANSWER`` as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.backend.runtime.engines import EngineSettings, has_own_process
from rankslice.backend.runtime.engines.litert_compiled import open_engine as open_compiled
from rankslice.backend.runtime.engines.litert_interpreter import (
    missing_operator,
    replaced_operators,
)
from rankslice.backend.runtime.engines.litert_package import (
    LiteRtPackage,
    file_of_package,
    find_package,
    first_line,
)
from rankslice.backend.runtime.engines.litert_profiled import LIBRARY, ProfiledEngine
from rankslice.backend.runtime.engines.onnxruntime_cuda import BUFFERS, CudaFrames
from rankslice.backend.runtime.engines.onnxruntime_engine import create_session, session_options
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.engines.onnxruntime_providers import (
    count_operators,
    find_provider,
    short_name,
)
from rankslice.backend.runtime.errors import FrameError, JobError
from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.backend.runtime.figures.operator_rows import operator_rows
from rankslice.backend.runtime.job import Facts, Tensor
from rankslice.backend.runtime.system.processes import bytes_of
from rankslice.framework.engine_process import write_answer
from rankslice.framework.graph import dtype_bits, values_bytes
from rankslice.framework.reading.records import as_record
from rankslice.frontend.formats.tflite.object import read_object
from rankslice.session.internals import (
    Internals,
    Node,
    Request,
    TensorMemory,
)

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Levels of optimisation, up to what a session usually has -> onnxruntime's names of them."""
_MAX_FRAMES, _MAX_S = 20, 1.0
_KERNEL = "_kernel_time"
"""Ending of the name of a node's event in a profile."""


def _main(model: str, request: str, answer: str) -> None:
    wanted: Request = as_record(Request, json.loads(request))
    inspect_with = _of_onnxruntime if wanted.engine == "onnxruntime" else _of_litert
    try:
        for internals in inspect_with(Path(model), wanted, Path(answer).parent):
            write_answer(answer, asdict(internals))
    except ImportError as error:
        expected = f"pip install 'rankslice[{wanted.engine}]'" if wanted.engine == "litert" else ""
        write_answer(answer, {"error": first_line(error), "expected": expected})
    except (JobError, ValueError, RuntimeError) as error:
        write_answer(answer, {"error": first_line(error), "expected": ""})


def _of_onnxruntime(path: Path, request: Request, folder: Path) -> Iterator[Internals]:
    """Yield the internals before a run, and again after it, since it may end the process."""
    import onnx

    from rankslice.frontend.formats.onnx.nodes import operator

    onnxruntime = load_onnxruntime()
    settings = replace(request.settings, profile=str(folder / "profile"))
    provider = find_provider(onnxruntime, settings)
    if provider.is_cuda:  # how frames come to CUDA and back is no matter: they are zeros
        frames_of_cuda = CudaFrames(provider.options)
        frames_of_cuda.leave_out(BUFFERS, "frames are zeros")
        provider = replace(provider, options=frames_of_cuda.session_options())
    by = short_name(provider.name)
    levels, graph = {}, onnx.GraphProto()
    for level, name in _LEVELS.items():
        options = session_options(onnxruntime, request.settings)
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
        options.optimized_model_filepath = str(folder / "level.onnx")
        # A model of more than 2 GB is no file without it.
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, "level.values")
        try:
            create_session(onnxruntime, path, options, provider)
        except JobError as error:
            if provider.is_cpu or "compiled nodes" not in str(error):
                raise
            break  # there is no file of what a provider has compiled
        graph = onnx.load(folder / "level.onnx", load_external_data=False).graph
        levels[level] = len(graph.node)
    session = create_session(onnxruntime, path, session_options(onnxruntime, settings), provider)
    internals = Internals(
        runtime=f"onnxruntime {onnxruntime.__version__}",
        provider=by,
        levels=levels,
        accelerated=None if provider.is_cpu else count_operators(session, provider, path),
        nodes=tuple(
            Node(node.name, operator(node), by if provider.is_cpu else "", None, ())
            for node in graph.node
        ),
        untimed="" if request.inputs else "its inputs have no fixed size",
    )
    yield internals
    if not request.inputs:
        return
    zeros = {spec.name: np.zeros(spec.shape or (), spec.dtype) for spec in request.inputs}
    try:
        frames = _timed_runs(lambda: session.run(None, zeros))
        profile = json.loads(Path(session.end_profiling()).read_text())
    except Exception as error:  # onnxruntime's exceptions have no common base class
        yield replace(internals, untimed=f"it fails on zeros: {' '.join(str(error).split())}")
        return
    names = {(node.name, node.op.rpartition(".")[2]): node.op for node in internals.nodes}
    yield replace(internals, nodes=tuple(_timed(profile, frames, names)), frames=frames)


def _timed_runs(run: Callable[[], object]) -> int:
    """Run once to warm up, then as often as there is time for; return how often that was."""
    run()
    begin, frames = time.monotonic(), 0
    while frames < _MAX_FRAMES and (not frames or time.monotonic() - begin < _MAX_S):
        run()
        frames += 1
    return frames


def _timed(
    profile: Sequence[Mapping[str, Any]], frames: int, names: Mapping[tuple[str, str], str]
) -> Iterator[Node]:
    """Yield the nodes of a profile; those in the bodies of control flow may run often per frame.

    Args:
        profile: its events; it has one more frame, before those that are timed.
        frames: how many are timed.
        names: operators with their domains, by the node's name and the operator's.
    """
    times: dict[tuple[str, str, str, str], list[int]] = {}
    for event in profile:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            about = event["args"]
            name, op = event["name"].removesuffix(_KERNEL), about.get("op_name", "")
            key = name, op, about.get("provider", ""), str(about.get("node_index"))
            times.setdefault(key, []).append(event["dur"])
    for (name, op, provider, _), durations in times.items():
        runs, rest = divmod(len(durations), frames + 1)
        sums = [sum(durations[at : at + runs]) for at in range(runs, len(durations), max(runs, 1))]
        microseconds = None if rest or not runs else float(statistics.median(sums))
        yield Node(name, names.get((name, op), op), short_name(provider), microseconds, ())


def _of_litert(path: Path, request: Request, folder: Path) -> Iterator[Internals]:
    package, settings = find_package(), request.settings
    model = read_object(path)
    subgraph = model["subgraphs"][0]
    count = len(subgraph["operators"])
    if has_own_process("litert", settings) and not request.only_operators:
        accelerated = _compile(path, settings, subgraph)
        yield Internals(package.name, accelerated.by, {"file": count}, accelerated)
        return
    options = dict(settings.options)
    library = options.pop("delegate", "")
    by = Path(library).name or "XNNPACK"
    delegates = [package.load_delegate(library, options)] if library else []
    try:
        interpreter = package.interpreter(path, 1, delegates, only_delegates=bool(delegates))
        memory = _Memory(path, interpreter, model)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        reason = missing_operator(error, package.name)
        if reason or not request.only_operators:  # a job may give it other sizes
            reason = reason or f"{package.name} cannot load it: {first_line(error)}"
            raise JobError(reason) from None
    if request.only_operators:
        yield Internals(package.name, by, {}, None)
        return
    nodes = tuple(_nodes(interpreter, by))
    replaced = [node.replaces for node in nodes if node.replaces]
    others = dict.fromkeys(node.op for node in nodes if not node.replaces)
    accelerated = Acceleration(by, None, None)
    if nodes:
        taken = sum(map(len, replaced))
        accelerated = Acceleration(by, taken, count, len(replaced), tuple(others))
    tensors = memory.tensors()
    internals = Internals(
        runtime=package.name,
        provider=by,
        levels={"file": count, "delegated": len(nodes)} if nodes else {"file": count},
        accelerated=accelerated,
        nodes=nodes,
        untimed="the delegate reports none" if library else "",
        tensors=tensors,
        arena_bytes=_arena_bytes(tensors),
        mapped=memory.mapped,
    )
    yield internals
    if not library:
        yield replace(internals, **_kernels(path, package, interpreter))


def _kernels(path: Path, package: LiteRtPackage, interpreter: Any) -> dict[str, Any]:
    """Time the operators of a compiled model, or say why that is impossible."""
    if file_of_package(LIBRARY) is None:
        return {"untimed": f"{package.name} has no profiler"}
    engine = ProfiledEngine(EngineSettings(profile="-"), package)
    sides = [interpreter.get_input_details(), interpreter.get_output_details()]
    inputs, outputs = (
        [
            Tensor(str(item["name"]), np.dtype(item["dtype"]).name, tuple(map(int, item["shape"])))
            for item in side
        ]
        for side in sides
    )
    engine.load(path, inputs, outputs)
    arrays = [[np.zeros(spec.shape, spec.dtype) for spec in side] for side in (inputs, outputs)]
    try:
        frames = _timed_runs(lambda: engine.run(*arrays))
    except FrameError as error:
        return {"untimed": f"it fails on zeros: {error}"}
    spans = engine.operators()
    if spans is None:
        return {"untimed": "LiteRT's profiler does not take models like this one"}
    return {"kernels": tuple(operator_rows(spans, frames)), "frames": frames}


def _compile(path: Path, settings: EngineSettings, subgraph: Mapping[str, Any]) -> Acceleration:
    options = {name: value for name, value in settings.options.items() if name != "api"}
    facts = Facts(operators=len(subgraph["operators"]))
    engine = open_compiled(replace(settings, options=options, facts=facts))
    inputs, outputs = (
        [
            Tensor(tensor["name"], tensor["type"], tuple(tensor["shape"]))
            for tensor in (subgraph["tensors"][number] for number in subgraph[side])
        ]
        for side in ("inputs", "outputs")
    )
    engine.load(path, inputs, outputs)
    acceleration = engine.acceleration()
    assert acceleration is not None
    return acceleration


def _nodes(interpreter: Any, by: str) -> Iterator[Node]:
    try:
        details = interpreter._get_ops_details()
    except AttributeError:  # the method is not public
        return
    names = {item["index"]: str(item["name"]) for item in interpreter.get_tensor_details()}
    operators = [node for node in details if node["op_name"] != "DELEGATE"]
    delegates = [node for node in details if node["op_name"] == "DELEGATE"]
    taken = {node["index"]: sorted(replaced_operators(operators, [node])) for node in delegates}
    gone = {place for places in taken.values() for place in places}
    kept = [node for place, node in enumerate(operators) if place not in gone]
    first = {index: min(places, default=index) for index, places in taken.items()}
    for node in sorted([*kept, *delegates], key=lambda n: first.get(n["index"], n["index"])):
        replaces = tuple(int(operators[n]["index"]) for n in taken.get(node["index"], ()))
        made = next((names.get(number, "") for number in node["outputs"]), "")
        where = by if replaces else "LiteRT"
        yield Node(made, str(node["op_name"]), where, None, replaces)


class _Memory:
    """The memory of an interpreter's tensors, before and after they are allocated."""

    def __init__(self, path: Path, interpreter: Any, model: Mapping[str, Any]) -> None:
        self._interpreter = interpreter
        self._in_file = model["subgraphs"][0]["tensors"]
        self._filled = ["data" in buffer or buffer["size"] for buffer in model["buffers"]]
        self._mapped = [*_mappings(path)]
        self._before = {
            item["index"]: self._place(item)[0] for item in interpreter.get_tensor_details()
        }

    @property
    def mapped(self) -> str:
        """Where the file is mapped; empty if it is not, or the system does not tell."""
        return "{:#x}-{:#x} {}".format(*self._mapped[0]) if self._mapped else ""

    def tensors(self) -> tuple[TensorMemory, ...]:
        return tuple(map(self._tensor, self._interpreter.get_tensor_details()))

    def _tensor(self, details: Mapping[str, Any]) -> TensorMemory:
        number = int(details["index"])
        place, size = self._place(details)
        return TensorMemory(
            number=number,
            name=str(details["name"]),
            dtype=self._dtype(details),
            shape=tuple(map(int, details["shape"])),
            bytes=size,
            before=self._kind(number, self._before.get(number, "none")),
            after=self._kind(number, place),
            address=place if isinstance(place, int) else None,
        )

    def _kind(self, number: int, place: int | str) -> str:
        if isinstance(place, str):
            return place
        if any(begin <= place < end for begin, end, _ in self._mapped):
            return "file"
        if number >= len(self._in_file):
            return "arena"
        tensor = self._in_file[number]
        if self._filled[tensor["buffer"]]:
            return "own"
        return "variable" if tensor["is_variable"] else "arena"

    def _dtype(self, details: Mapping[str, Any]) -> str:
        """Return a tensor's type, in the file's word for those that numpy lacks."""
        number = int(details["index"])
        if number < len(self._in_file):
            return str(self._in_file[number]["type"])
        return str(np.dtype(details["dtype"]).name)

    def _place(self, details: Mapping[str, Any]) -> tuple[int | str, int | None]:
        """Return a tensor's address, or ``none`` or ``unseen``; and its size in bytes."""
        shape = tuple(map(int, details["shape"]))
        if not dtype_bits(self._dtype(details)):
            # Text and handles have memory of their own kind, and LiteRT crashes when asked for it.
            return "unseen", None
        size = values_bytes(self._dtype(details), shape)
        if not shape:
            # Of a tensor without dimensions Python gets the number, not the memory.
            return "unseen", size
        try:
            view = self._interpreter.tensor(details["index"])()
            return int(view.__array_interface__["data"][0]), int(view.nbytes)
        except ValueError as error:
            return ("none" if "null" in str(error) else "unseen"), size
        except (RuntimeError, TypeError, AttributeError):
            return "unseen", size


def _mappings(path: Path) -> Iterator[tuple[int, int, str]]:
    try:
        lines = bytes_of("self", "maps").decode(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5] == str(path.resolve()):
            begin, end = (int(text, 16) for text in parts[0].split("-"))
            yield begin, end, parts[1]


def _arena_bytes(tensors: Sequence[TensorMemory]) -> int:
    """Count the bytes that tensors in the arena cover."""
    total = end = 0
    spans = [(t.address, t.bytes) for t in tensors if t.after == "arena" and t.address and t.bytes]
    for address, size in sorted(spans):
        total += max(0, address + size - max(address, end))
        end = max(end, address + size)
    return total


if __name__ == "__main__":
    _main(*sys.argv[1:])
