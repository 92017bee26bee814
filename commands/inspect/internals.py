"""What LiteRT makes of a ``.tflite`` file: nodes, execution plan, a delegate's part, memory.

LiteRT runs in a process of its own, so a file or a driver that makes it crash does no harm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.errors import signal_name
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.records import as_record
from rankslice.frontend.formats.tflite.object import read_object

FORMAT = "rankslice-internals"
VERSION = 1

_CHILD = "rankslice.commands.inspect.internals_process"
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """How LiteRT is to run the model."""

    delegate: str = ""
    """A delegate library; empty: XNNPACK, which LiteRT has built in."""
    accelerator: str = ""
    """``gpu`` or ``npu``: a compiled model; empty: the interpreter."""
    options: dict[str, str] = field(default_factory=dict)
    """Of the delegate library or the compiled model."""


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


def look_inside(path: Path, wanted: Wanted) -> Internals:
    """Return what LiteRT makes of a model.

    Args:
        path: a ``.tflite`` file.
        wanted: delegate or accelerator.

    Raises:
        RankSliceError: the file is no TensorFlow Lite model; LiteRT is not installed, cannot
            load the model or the delegate, or crashes.
    """
    read_object(path)
    with temporary_folder() as folder:
        found, log = folder.path / "found.json", folder.path / "log"
        command = [sys.executable, "-m", _CHILD, str(path), json.dumps(asdict(wanted)), str(found)]
        # A file, for the log of compiled models is read by the process itself.
        with log.open("wb") as stderr:
            try:
                ended = subprocess.run(
                    command, stdout=stderr, stderr=stderr, timeout=_PATIENCE_S, check=False
                )
            except subprocess.TimeoutExpired:
                told = f"LiteRT did not finish within {_PATIENCE_S} s"
                raise RankSliceError(Mistake(str(path), told)) from None
        if ended.returncode or not found.is_file():
            raise RankSliceError(Mistake(str(path), _crash(ended.returncode, log)))
        record = json.loads(found.read_text())
    if "error" in record:
        raise RankSliceError(Mistake(str(path), record["error"], record.get("expected", "")))
    return internals_from_json(record)


def _crash(code: int, log: Path) -> str:
    if code < 0:
        return f"LiteRT crashed on it ({signal_name(-code)})"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"LiteRT failed on it: {lines[-1] if lines else f'it ended with code {code}'}"


def internals_to_json(found: Internals) -> dict[str, Any]:
    """Return what was seen as a JSON object."""
    return {"format": FORMAT, "version": VERSION, **asdict(found)}


def internals_from_json(record: Mapping[str, Any]) -> Internals:
    """Return what :func:`internals_to_json` made a JSON object of."""
    found: Internals = as_record(Internals, record)
    return found
