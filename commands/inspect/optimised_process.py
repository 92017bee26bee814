"""The process in which ``inspect --internals`` loads an ONNX model: ``MODEL WANTED FOUND``.

What is found, or why nothing is, goes to the file ``FOUND`` as JSON.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.backend.runtime.engines.onnxruntime_cuda import BUFFERS, CudaFrames
from rankslice.backend.runtime.engines.onnxruntime_engine import create_session, session_options
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.engines.onnxruntime_providers import (
    CPU,
    Provider,
    find_provider,
    short_name,
)
from rankslice.backend.runtime.errors import JobError
from rankslice.commands.inspect.fusions import Node, Stage
from rankslice.commands.inspect.optimised import Answer, Ran, Wanted
from rankslice.framework.reading.records import as_record
from rankslice.frontend.formats.onnx.nodes import operator

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Levels of optimisation, up to what a session usually has -> onnxruntime's names of them."""
_BEFORE_PROVIDERS = ("disabled", "basic")
"""Levels that a graph has before providers take their parts of it."""

_MOST_FRAMES, _LONGEST_S = 20, 1.0
_KERNEL = "_kernel_time"
"""Ending of the name of a node's event in a profile."""

_UNSEEN = (
    "nodes in the bodies of If, Loop and Scan: such an operator counts as one node",
    "onnxruntime's own account of what it fused: inferred from the names of tensors and nodes",
)
_QUEUED = "how long {} computes, if it does so on its own: a node's time is that of its call"
_COMPILED = (
    "what {} makes of the part that it compiles, and what onnxruntime makes of the rest after level"
    " basic"
)


def _main(model: str, wanted: str, found: str) -> None:
    try:
        _look(Path(model), as_record(Wanted, json.loads(wanted)), Path(found))
    except (ImportError, JobError) as error:
        _write(Path(found), {"error": " ".join(str(error).split())})


def _write(file: Path, record: Mapping[str, Any]) -> None:
    whole = file.with_suffix(".whole")
    whole.write_text(json.dumps(record))
    whole.replace(file)


def _look(path: Path, wanted: Wanted, found: Path) -> None:
    """Write what is seen before a run; and again after it, as it may end the process."""
    inside = _Inside(path, wanted.settings, found.parent)
    answer = inside.answer()
    _write(found, asdict(answer))
    reason = "its inputs have no fixed size"
    if wanted.can_run:
        try:
            _write(found, asdict(inside.timed(answer, wanted)))
            return
        except Exception as error:  # onnxruntime's exceptions have no common base class
            reason = f"it fails on zeros: {' '.join(str(error).split())}"
    _write(found, asdict(replace(answer, unseen=(*answer.unseen, f"times: {reason}"))))


class _Inside:
    """onnxruntime with a model."""

    def __init__(self, path: Path, settings: EngineSettings, folder: Path) -> None:
        self._onnxruntime = load_onnxruntime()
        self._provider = _without_frames(find_provider(self._onnxruntime, settings))
        self._path, self._settings, self._folder = path, settings, folder
        self._session: Any = None
        self._is_compiled = False

    def answer(self) -> Answer:
        """Return the graph after each level, without times."""
        by = short_name(self._provider.name)
        try:
            stages = [self._stage(level, self._provider) for level in _LEVELS]
        except JobError as error:
            if self._provider.is_cpu or "compiled nodes" not in str(error):
                raise
            self._is_compiled = True
            stages = self._compiled_stages(by)
        unseen = [*_UNSEEN]
        if not self._provider.is_cpu:
            unseen.append(_QUEUED.format(by))
        if self._is_compiled:
            unseen.append(_COMPILED.format(by))
        return Answer(
            runtime=f"onnxruntime {self._onnxruntime.__version__}",
            provider=by,
            stages=tuple(stages),
            ran=tuple(Ran(by if self._provider.is_cpu else "", None) for _ in stages[-1].nodes),
            frames=0,
            unseen=tuple(unseen),
        )

    def _stage(self, level: str, provider: Provider) -> Stage:
        """Return the graph at a level; the session stays open until the next one."""
        file, values = self._folder / "stage.onnx", "stage.values"
        options = self._options(level)
        options.optimized_model_filepath = str(file)
        # A model of more than 2 GB is no file without it.
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, values)
        self._open(options, provider)
        graph = onnx.load(file, load_external_data=False).graph
        file.unlink()
        (self._folder / values).unlink(missing_ok=True)
        weights = [*graph.initializer, *(each.values for each in graph.sparse_initializer)]
        return Stage(level, tuple(map(_node, graph.node)), tuple(each.name for each in weights))

    def _options(self, level: str) -> Any:
        options = session_options(self._onnxruntime, self._settings)
        levels = self._onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = getattr(levels, _LEVELS[level])
        options.enable_profiling = True
        options.profile_file_prefix = str(self._folder / "profile")
        return options

    def _open(self, options: Any, provider: Provider) -> None:
        if self._session is not None:
            Path(self._session.end_profiling()).unlink(missing_ok=True)
        self._session = None
        self._session = create_session(self._onnxruntime, self._path, options, provider)

    def _compiled_stages(self, by: str) -> list[Stage]:
        """Return the graphs before the provider has compiled its parts, and with these as nodes."""
        stages = [self._stage(level, Provider(CPU)) for level in _BEFORE_PROVIDERS]
        self._open(self._options("all"), self._provider)
        try:
            parts = self._session.get_provider_graph_assignment_info()
        except AttributeError:
            version = self._onnxruntime.__version__
            raise JobError(f"onnxruntime {version} does not report what {by} compiles") from None
        mine = [
            frozenset(node.name for node in part.get_nodes())
            for part in parts
            if part.ep_name == self._provider.name
        ]
        return [*stages, with_parts(stages[-1], mine, by)]

    def timed(self, answer: Answer, wanted: Wanted) -> Answer:
        """Return an answer with where nodes run, and how long."""
        frame = {name: np.zeros(shape, dtype) for name, dtype, shape in wanted.inputs}
        self._session.run(None, frame)
        begin = time.monotonic()
        frames = 0
        while frames < _MOST_FRAMES and (not frames or time.monotonic() - begin < _LONGEST_S):
            self._session.run(None, frame)
            frames += 1
        events = json.loads(Path(self._session.end_profiling()).read_text())
        nodes = answer.stages[-1].nodes
        ran = self._ran(nodes, events, frames, answer.provider)
        return replace(answer, ran=tuple(ran), frames=frames)

    def _ran(
        self, nodes: Sequence[Node], events: Sequence[Mapping[str, Any]], frames: int, by: str
    ) -> list[Ran]:
        """Return where each node ran; the profile has one more frame before those to be timed."""
        places: dict[tuple[str, str], list[int]] = {}
        for index, node in enumerate(nodes):
            places.setdefault((node.name, node.op.rpartition(".")[2]), []).append(index)
        met: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
                met.setdefault(self._key(event, places, by), []).append(event)
        ran = [Ran("", None)] * len(nodes)
        for key, indices in places.items():
            found = met.get(key, [])
            # Nodes in bodies may be called the same.
            is_clear = len(found) == len(indices) * (frames + 1)
            for number, index in enumerate(indices):
                own = found[number :: len(indices)]
                if own:
                    times = [event["dur"] for event in own[1:]] if is_clear else []
                    ran[index] = Ran(
                        short_name(own[0]["args"].get("provider", "")),
                        statistics.median(times) if times else None,
                    )
        return ran

    def _key(
        self, event: Mapping[str, Any], places: Mapping[tuple[str, str], Sequence[int]], by: str
    ) -> tuple[str, str]:
        """Return the name and the operator of an event's node, as the graph has them."""
        about = event["args"]
        name, op = event["name"].removesuffix(_KERNEL), about.get("op_name", "")
        if (name, op) in places:
            return name, op
        if name == f"{op}_{about.get('node_index')}":
            return "", op  # it has no name
        return ("", by) if about.get("provider") == self._provider.name else (name, op)


def _without_frames(provider: Provider) -> Provider:
    """Return a provider without the options that say how frames come to CUDA and back."""
    if not provider.is_cuda:
        return provider
    frames = CudaFrames(provider.options)
    frames.leave_out(BUFFERS, "frames are zeros")
    return replace(provider, options=frames.session_options())


def _node(node: onnx.NodeProto) -> Node:
    attributes = sorted(node.attribute, key=lambda each: each.name)
    texts = [each.SerializeToString(deterministic=True) for each in attributes]
    return Node(
        node.name,
        operator(node),
        tuple(filter(None, node.input)),
        tuple(filter(None, node.output)),
        hashlib.sha256(b"".join(texts)).hexdigest()[:16],
    )


def with_parts(stage: Stage, parts: Sequence[frozenset[str]], by: str) -> Stage:
    """Return a graph with a node in the place of each part that a provider has compiled."""
    part_of = {name: number for number, names in enumerate(parts) for name in names}
    inner: dict[int, list[Node]] = {}
    for node in stage.nodes:
        if node.name in part_of:
            inner.setdefault(part_of[node.name], []).append(node)
    kept = [node for node in stage.nodes if node.name not in part_of]
    waiting = [*kept, *(_as_one(nodes, by) for nodes in inner.values())]
    return Stage("all", tuple(_in_order(waiting)), stage.weights)


def _as_one(nodes: Sequence[Node], by: str) -> Node:
    made = tuple(name for node in nodes for name in node.outputs)
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    return Node("", by, tuple(read), made, "")


def _in_order(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield nodes, each after those whose results it reads."""
    waiting = list(nodes)
    unmade = {name for node in waiting for name in node.outputs}
    while waiting:
        ready = next((node for node in waiting if unmade.isdisjoint(node.inputs)), waiting[0])
        yield ready
        waiting.remove(ready)
        unmade -= {*ready.outputs}


if __name__ == "__main__":
    _main(*sys.argv[1:])
