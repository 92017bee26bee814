"""What LiteRT makes of a ``.tflite`` file: nodes, execution plan, a delegate's part, memory.

LiteRT runs in a process of its own, so a file or a driver that makes it crash does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankslice.commands.inspect.child import ask_child
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.records import as_record
from rankslice.frontend.formats.tflite.object import read_object

_CHILD = "rankslice.commands.inspect.internals_process"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How an engine is to run the model."""

    delegate: str = ""
    """A delegate library for LiteRT; empty: XNNPACK, which it has built in."""
    accelerator: str = ""
    """``gpu`` or ``npu``, for which LiteRT compiles the model; empty: the CPU."""
    options: dict[str, str] = field(default_factory=dict)
    """Of the delegate library or the compiled model; for onnxruntime ``provider``, and its own."""

    @property
    def given(self) -> tuple[str, ...]:
        """The options of the command line that say so."""
        values = {
            "--delegate": self.delegate,
            "--accelerator": self.accelerator,
            "--option": self.options,
        }
        return tuple(name for name, value in values.items() if value)


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where the model file lies in the memory of LiteRT's process."""

    begin: int
    end: int
    permissions: str
    """As ``/proc/PID/maps`` has them: ``r--s``, readable and shared."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the runtime: an operator of the model, or a delegate in the place of several."""

    number: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    replaces: tuple[int, ...]
    """Numbers of the nodes whose place a delegate has taken; empty for operators."""


@dataclass(frozen=True, slots=True)
class RuntimeTensor:
    """A tensor and the memory it has."""

    number: int
    name: str
    """Empty for working memory that a kernel has asked for."""
    dtype: str
    shape: tuple[int, ...]
    bytes: int | None
    """``None`` if Python cannot tell."""
    before: str
    """Memory before tensors are allocated: ``file`` (mapped), ``own`` (a copy that was made when
    the interpreter was built), ``none``, or ``unseen``."""
    after: str
    """Memory then; also ``arena``, which tensors take turns in, and ``variable``."""
    address: int | None
    """After allocation."""


@dataclass(frozen=True, slots=True)
class Built:
    """An interpreter after its tensors have been allocated."""

    nodes: tuple[Node, ...]
    execution_plan: tuple[int, ...]
    """Numbers of the nodes that run, in an order in which they can."""
    tensors: tuple[RuntimeTensor, ...]
    arena_bytes: int
    """Memory that the tensors in the arena cover; what several have in turn counts once."""
    arena_tensor_bytes: int
    """Sum of their sizes."""
    resident_bytes: int | None
    """By how much allocating has made the process grow."""


@dataclass(frozen=True, slots=True)
class Internals:
    """What LiteRT makes of a model, alone and with a delegate."""

    file: str
    runtime: str
    """Package and version."""
    by: str
    """The delegate or accelerator."""
    mapped: Mapped | None
    """``None`` if the file is not mapped, or the system does not tell."""
    subgraphs: int
    plain: Built
    """With the kernels of LiteRT alone."""
    delegated: Built | None
    """With the delegate; ``None`` for compiled models, of which less can be seen."""
    accelerated: dict[str, Any] | None
    """Of a compiled model: ``operators`` ``of`` how many, ``partitions``, and kinds of
    ``others`` that stay on the CPU."""
    unseen: tuple[str, ...]
    """What cannot be seen from Python, in words."""


def look_inside(
    path: Path, wanted: Wanted, environment: Mapping[str, str] | None = None
) -> Internals:
    """Return what LiteRT makes of a model.

    Args:
        path: a ``.tflite`` file.
        wanted: delegate or accelerator.
        environment: variables of the process that looks; by default those of this one.

    Raises:
        RankSliceError: the file is no TensorFlow Lite model; LiteRT is not installed, cannot
            load the model or the delegate, or crashes.
    """
    read_object(path)
    record, crash = ask_child(_CHILD, "LiteRT", path, asdict(wanted), environment)
    if crash:
        raise RankSliceError(Mistake(str(path), crash))
    found: Internals = as_record(Internals, record)
    return found
