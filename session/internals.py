"""``inspect --internals``: what the engines make of a model, or of the sub-models of a job.

An engine runs in a process of its own, ``internals_process.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.engines import EngineSettings, engine_settings
from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.backend.runtime.figures.operator_rows import OperatorRow
from rankslice.backend.runtime.job import Rank, Tensor
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.engine_process import answer_of
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import read_record
from rankslice.framework.wording import quoted
from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.tflite.object import read_object
from rankslice.session.build_folder import is_build_folder, read_plan, refuse_other_folders

FORMAT = "rankslice-internals"
VERSION = 3

_CHILD = "rankslice.session.internals_process"
_ENGINES = {"onnxruntime": "onnxruntime", "litert": "LiteRT"}
"""Engines that can be inspected -> their names in messages."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that the engine runs."""

    name: str
    """Empty if it has none; LiteRT: of its first output."""
    op: str
    provider: str
    """Execution provider or delegate; empty if not known."""
    microseconds: float | None
    """Median of the frames; ``None``: not measured."""
    replaces: tuple[int, ...]
    """LiteRT: numbers of the operators that a delegate has replaced by this node."""


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """A tensor of LiteRT's interpreter and its memory."""

    number: int
    name: str
    """Empty for working memory of a kernel."""
    dtype: str
    shape: tuple[int, ...]
    bytes: int | None
    before: str
    """Memory before tensors are allocated: ``file`` (mapped), ``own`` (a copy of a constant),
    ``arena`` (which tensors share in turn), ``variable``, ``none``, or ``unseen``."""
    after: str
    address: int | None
    """After allocation."""


@dataclass(frozen=True, slots=True)
class Internals:
    """What an engine makes of a model."""

    runtime: str
    """Package and version."""
    provider: str
    """Execution provider, delegate or accelerator that was asked for."""
    levels: dict[str, int]
    """Number of nodes in the ``file``, and after each level of optimisation or a delegate."""
    accelerated: Acceleration | None
    """What the provider, delegate or accelerator runs; ``None``: onnxruntime on the CPU."""
    nodes: tuple[Node, ...] = ()
    """Those that run, in their order; empty if the engine does not tell."""
    kernels: tuple[OperatorRow, ...] = ()
    """LiteRT: how long each operator took on the CPU, and the kernels that computed it."""
    frames: int = 0
    """Runs on zeros that were timed, after one that was not."""
    untimed: str = ""
    """Why nodes have no times."""
    tensors: tuple[TensorMemory, ...] = ()
    arena_bytes: int = 0
    """Memory that the tensors in LiteRT's arena cover."""
    mapped: str = ""
    """LiteRT: where the file is mapped into memory, as in ``/proc/PID/maps``."""
    rank: int | None = None
    """The rank whose sub-model it is; ``None``: of no job."""
    file: str = ""
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What the process of an engine must know."""

    engine: str
    settings: EngineSettings
    inputs: tuple[Tensor, ...] = ()
    """ONNX: the inputs of a frame; empty if a shape is not known."""
    only_operators: bool = False
    """LiteRT: find out only whether it lacks an operator of the model."""


def inspect_internals(
    model: Path,
    settings: EngineSettings,
    sizes: GivenSizes = NO_SIZES,
    rank: int | None = None,
) -> Iterator[Internals]:
    """Yield the engines' internals of a model, or of each sub-model of a job.

    Args:
        model: a ``.tflite`` or ONNX file, or a folder made by ``build``.
        settings: how the engine is to run it; a folder's plan says so itself.
        sizes: sizes that an ONNX file leaves open.
        rank: of a folder: only this rank's sub-models.

    Raises:
        RankSliceError: it is none of these; an option is given that the folder has itself; an
            engine is missing, cannot load a model, or crashes.
    """
    if is_build_folder(model):
        found = f"{model} was built with its own engines and sizes"
        expected = "give a sub-model's file instead of the folder"
        given = (*_options(settings), *sizes.options)
        raise_mistakes(Mistake(name, found, expected) for name in given)
        yield from _of_ranks(model, read_plan(model), rank)
        return
    refuse_other_folders(model)
    if rank is not None:
        raise RankSliceError(Mistake("--rank", f"{model} has no ranks", "give a build folder"))
    suffix = model.suffix.lower()
    if suffix in (".keras", ".h5", ".hdf5"):
        expected = "--internals takes .tflite and .onnx files, and build folders"
        raise RankSliceError(Mistake(str(model), f"has the suffix {quoted(suffix)}", expected))
    if suffix == ".onnx":
        _refuse_without_provider(settings)
        yield ask_onnxruntime(model, settings, sizes)
        return
    found = f"{model.name} is loaded with the sizes that it has"
    raise_mistakes(Mistake(name, found, "leave it out") for name in sizes.options)
    yield ask_litert(model, settings)


def _options(settings: EngineSettings) -> tuple[str, ...]:
    is_given_by = {
        "--delegate": "delegate" in settings.options,
        "--accelerator": settings.accelerator != "cpu",
        "--option": settings.options.keys() - {"delegate"},
    }
    return tuple(name for name, is_given in is_given_by.items() if is_given)


def _refuse_without_provider(settings: EngineSettings) -> None:
    expected = "name an execution provider: --option provider=NAME"
    if "delegate" in settings.options:
        found = "onnxruntime uses no delegate libraries"
        raise RankSliceError(Mistake("--delegate", found, expected))
    if "provider" not in settings.options:
        found = "the execution provider is missing"
        raise_mistakes(Mistake(name, found, expected) for name in _options(settings))


def _of_ranks(folder: Path, plan: Plan, rank: int | None) -> Iterator[Internals]:
    if rank is not None and rank >= len(plan.ranks):
        found = f"there is no rank {rank}"
        raise RankSliceError(Mistake("--rank", found, f"expected 0 to {len(plan.ranks) - 1}"))
    segments = [
        segment
        for route in plan.routes
        for segment in route.segments
        if rank in (None, segment.rank)
        if (segment.engine or plan.ranks[segment.rank].engine) in _ENGINES
    ]
    if not segments:
        whose = "the ranks have" if rank is None else f"rank {rank} has"
        found = f"{whose} no sub-models for onnxruntime or LiteRT"
        raise RankSliceError(Mistake("--rank" if rank is not None else str(folder), found))
    for segment in segments:
        placement = plan.ranks[segment.rank]
        engine = segment.engine or placement.engine
        settings = engine_settings(placement, exact=False, engine=engine)
        settings = replace(settings, allow_fallback=True)
        bounds = {
            tensor.name: tensor.shape
            for tensor in plan.job.tensors.values()
            if tensor.name in segment.inputs and tensor.is_open and tensor.shape is not None
        }
        names = dict(segment.facts.names)
        bounds = {names.get(name, name): shape for name, shape in bounds.items()}
        # What is set already stays, as in a rank's process.
        path, variables = folder / segment.file, {**dict(placement.environment), **os.environ}
        if engine == "litert":
            internals = ask_litert(path, settings, variables)
        else:
            internals = ask_onnxruntime(path, settings, GivenSizes(at_most=bounds), variables)
        yield replace(internals, rank=segment.rank)


def ask_onnxruntime(
    path: Path,
    settings: EngineSettings,
    sizes: GivenSizes = NO_SIZES,
    environment: Mapping[str, str] | None = None,
) -> Internals:
    """Load an ONNX file in onnxruntime; return its internals.

    Raises:
        RankSliceError: the file is no ONNX model, or one that cannot be sliced; onnxruntime is not
            installed, has no such provider here, cannot load the model, or crashes.
    """
    graph = read_model(path, sizes).graph
    inputs = tuple(
        Tensor(tensor.name, tensor.dtype, tensor.shape)
        for tensor in graph.inputs
        if tensor.shape is not None
    )
    is_known = len(inputs) == len(graph.inputs)
    request = Request("onnxruntime", settings, inputs if is_known else ())
    internals = _ask(path, request, environment)
    return replace(internals, levels={"file": len(graph.layers), **internals.levels})


def ask_litert(
    path: Path, settings: EngineSettings, environment: Mapping[str, str] | None = None
) -> Internals:
    """Load a ``.tflite`` file in LiteRT; return its internals.

    Raises:
        RankSliceError: the file is no TensorFlow Lite model; LiteRT is not installed, cannot
            load the model or the delegate, or crashes.
    """
    read_object(path)
    return _ask(path, Request("litert", settings), environment)


def missing_operator(path: Path, rank: Rank, engine: str = "") -> str:
    """Return why LiteRT cannot run a rank's sub-model on CPU cores: a missing operator, or a crash.

    Empty if there is no such reason, for other engines, and where LiteRT is not installed. The
    operators that accelerators and delegate libraries have are known to these alone.
    """
    engine = engine or rank.engine
    settings = engine_settings(rank, exact=False, engine=engine)
    if engine != "litert" or settings.accelerator != "cpu" or "delegate" in settings.options:
        return ""
    request = Request("litert", settings, only_operators=True)
    try:
        _ask(path, request, None)
    except RankSliceError as error:
        # Those with a remedy are about installing LiteRT.
        mistakes = (m for m in error.mistakes if isinstance(m, Mistake) and not m.expected)
        return next((mistake.found for mistake in mistakes), "")
    return ""


def _ask(path: Path, request: Request, environment: Mapping[str, str] | None) -> Internals:
    """Return the answer of an engine's process, also if it crashes after that."""
    name = _ENGINES[request.engine]
    arguments = (str(path), json.dumps(asdict(request)))
    with temporary_folder() as folder:
        answer, crash = answer_of(_CHILD, arguments, folder.path, name, environment)
    if answer is None:
        raise RankSliceError(Mistake(str(path), crash))
    if "error" in answer:
        raise RankSliceError(Mistake(str(path), answer["error"], answer["expected"]))
    internals = read_record(Internals, answer, f"{name}'s process")
    return replace(
        internals,
        file=path.name,
        threads=request.settings.threads,
        untimed=crash or internals.untimed,
    )


def internals_to_json(models: list[Internals]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "models": [asdict(model) for model in models],
    }
