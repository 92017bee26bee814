"""What onnxruntime makes of a model: its graph after each level of optimisation.

onnxruntime runs in a process of its own, so a file or a provider that makes it crash does no harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rankslice.backend.runtime.engines import EngineSettings
from rankslice.commands.inspect.child import ask_child
from rankslice.commands.inspect.fusions import Group, Node, Stage, groups_of
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Graph
from rankslice.framework.reading.records import read_record
from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.given_sizes import NO_SIZES, GivenSizes

_CHILD = "rankslice.commands.inspect.optimised_process"

FILE = "file"
"""The stage before onnxruntime has seen the model."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Where a node of the optimised graph ran, and for how long."""

    provider: str
    """Its execution provider, as ``CPU`` or ``CUDA``; empty if onnxruntime does not tell."""
    microseconds: float | None
    """Median of the frames; ``None`` if not measured."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the process of onnxruntime must know."""

    settings: EngineSettings
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Of a frame: name, type, shape."""
    can_run: bool
    """Whether all shapes are known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process of onnxruntime found."""

    runtime: str
    provider: str
    stages: tuple[Stage, ...]
    ran: tuple[Ran, ...]
    """By node of the last stage."""
    frames: int
    """Runs on zeros that were timed; 0: none."""
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optimised:
    """A model before and after onnxruntime's optimisation."""

    file: str
    runtime: str
    """Package and version."""
    provider: str
    """Execution provider that was asked for."""
    threads: int
    stages: tuple[Stage, ...]
    """From the file to the graph that runs."""
    groups: tuple[Group, ...]
    """What nodes of the last stage stand for which layers of the file; each is in one group."""
    ran: tuple[Ran, ...]
    """By node of the last stage."""
    frames: int
    """Runs on zeros that were timed, after one that was not; 0: none."""
    unseen: tuple[str, ...]
    """What cannot be seen, in words."""

    @property
    def before(self) -> tuple[Node, ...]:
        """The layers of the file."""
        return self.stages[0].nodes

    @property
    def after(self) -> tuple[Node, ...]:
        """The nodes that run."""
        return self.stages[-1].nodes

    def share(self, node: int) -> float | None:
        """Return a node's share of the time of all nodes; ``None`` if not measured."""
        own = self.ran[node].microseconds
        total = sum(each.microseconds or 0 for each in self.ran)
        return own / total if own is not None and total else None

    def operators(self, group: Group) -> tuple[Counter[str], Counter[str]]:
        """Return how many of each operator a group had in the file, and has now."""
        return (
            Counter(self.before[number].op for number in group.before),
            Counter(self.after[number].op for number in group.after),
        )


def look_at_stages(
    path: Path,
    settings: EngineSettings,
    sizes: GivenSizes = NO_SIZES,
    environment: Mapping[str, str] | None = None,
) -> Optimised:
    """Return what onnxruntime makes of a model.

    Args:
        path: an ONNX file.
        settings: threads, provider and its options.
        sizes: what is given of sizes that the file leaves open; those of the largest frame count.
        environment: variables of the process that looks; by default those of this one.

    Raises:
        RankSliceError: the file is no ONNX model, or one that cannot be sliced; onnxruntime is not
            installed, has no such provider here, cannot load the model, or crashes.
    """
    graph = read_model(path, sizes).graph
    inputs = tuple((t.name, t.dtype, t.shape) for t in graph.inputs if t.shape is not None)
    wanted = Wanted(settings, inputs, can_run=len(inputs) == len(graph.inputs))
    record, crash = ask_child(_CHILD, "onnxruntime", path, asdict(wanted), environment)
    answer = read_record(Answer, record, "onnxruntime's process")
    if not answer.stages or len(answer.ran) != len(answer.stages[-1].nodes):
        raise RankSliceError(Mistake(str(path), "onnxruntime's process reported no graph"))
    stages = (Stage(FILE, _nodes(graph), tuple(w.name for w in graph.weights)), *answer.stages)
    return Optimised(
        file=path.name,
        runtime=answer.runtime,
        provider=answer.provider,
        threads=settings.threads,
        stages=stages,
        groups=groups_of(stages),
        ran=answer.ran,
        frames=answer.frames,
        unseen=(*answer.unseen, *([f"times: {crash}"] if crash else [])),
    )


def _nodes(graph: Graph) -> tuple[Node, ...]:
    return tuple(
        Node(
            layer.name,
            layer.op,
            tuple(operand.name for operand in layer.operands if operand is not None),
            tuple(tensor.name for tensor in layer.outputs),
            "",
        )
        for layer in graph.layers
    )
