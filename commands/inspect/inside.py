"""``inspect --internals``: what the engines make of a model, or of the sub-models of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.engines import EngineSettings, engine_settings, has_own_process
from rankslice.backend.runtime.job import Rank
from rankslice.commands.inspect.internals import Internals, Wanted, look_inside
from rankslice.commands.inspect.optimised import Optimised, look_at_stages
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan, PlannedSegment
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.given_sizes import NO_SIZES, GivenSizes
from rankslice.session.build_folder import is_build_folder, read_plan, refuse_other_folders

FORMAT = "rankslice-internals"
VERSION = 2


@dataclass(frozen=True, slots=True)
class Inside:
    """What an engine makes of one model; one of the last two is there."""

    rank: int | None
    """The rank whose sub-model it is; ``None``: of no job."""
    litert: Internals | None
    onnxruntime: Optimised | None

    @property
    def file(self) -> str:
        """Name of the model's file."""
        found = self.litert or self.onnxruntime
        assert found is not None
        return found.file


def look_at(
    model: Path,
    wanted: Wanted,
    sizes: GivenSizes = NO_SIZES,
    rank: int | None = None,
) -> Iterator[Inside]:
    """Yield what the engines make of a model, or of each sub-model of a job.

    Args:
        model: a ``.tflite`` or ONNX file, or a folder made by ``build``.
        wanted: how the engine is to run it; a folder's plan says so itself.
        sizes: what is given of sizes that an ONNX file leaves open.
        rank: of a folder: only this rank's sub-models.

    Raises:
        RankSliceError: it is none of these; something is given that the folder has itself; an
            engine is missing, cannot load a model, or crashes.
    """
    if is_build_folder(model):
        given = (*wanted.given, *sizes.options)
        if given:
            found = f"{model} was built with its own engines and sizes"
            expected = "give a sub-model's file instead of the folder"
            raise RankSliceError(*(Mistake(name, found, expected) for name in given))
        yield from _look_at_ranks(model, read_plan(model), rank)
        return
    refuse_other_folders(model)
    if rank is not None:
        raise RankSliceError(Mistake("--rank", f"{model} has no ranks", "give a build folder"))
    kind = model.suffix.lower()
    if kind == ".onnx":
        _refuse_without_provider(wanted)
        settings = EngineSettings(
            options=wanted.options, accelerator=wanted.accelerator or "cpu", allow_fallback=True
        )
        yield Inside(None, None, look_at_stages(model, settings, sizes))
    elif kind in (".keras", ".h5", ".hdf5"):
        expected = "--internals takes .tflite and .onnx files, and build folders"
        raise RankSliceError(Mistake(str(model), f"has the suffix {quoted(kind)}", expected))
    else:
        _refuse_sizes(model, sizes)
        yield Inside(None, look_inside(model, wanted), None)


def _refuse_without_provider(wanted: Wanted) -> None:
    """Refuse what onnxruntime has no use for without an execution provider."""
    expected = "name an execution provider: --option provider=NAME"
    if wanted.delegate:
        found = "onnxruntime uses no delegate libraries"
        raise RankSliceError(Mistake("--delegate", found, expected))
    if wanted.given and "provider" not in wanted.options:
        found = "the execution provider is missing"
        raise RankSliceError(*(Mistake(name, found, expected) for name in wanted.given))


def _refuse_sizes(model: Path, sizes: GivenSizes) -> None:
    found = f"{model.name} is loaded with the sizes that it has"
    mistakes = [Mistake(name, found, "leave it out") for name in sizes.options]
    if mistakes:
        raise RankSliceError(*mistakes)


def _look_at_ranks(folder: Path, plan: Plan, rank: int | None) -> Iterator[Inside]:
    if rank is not None and rank >= len(plan.ranks):
        found = f"there is no rank {rank}"
        raise RankSliceError(Mistake("--rank", found, f"expected 0 to {len(plan.ranks) - 1}"))
    segments = [segment for route in plan.routes for segment in route.segments]
    wanted = [
        segment
        for segment in segments
        if rank in (None, segment.rank) and plan.ranks[segment.rank].engine in _LOOKS
    ]
    if not wanted:
        whose = "the ranks have" if rank is None else f"rank {rank} has"
        found = f"{whose} no sub-models for onnxruntime or LiteRT"
        raise RankSliceError(Mistake("--rank" if rank is not None else str(folder), found))
    for segment in wanted:
        placement = plan.ranks[segment.rank]
        yield _LOOKS[placement.engine](folder / segment.file, plan, segment, placement)


def _optimised(path: Path, plan: Plan, segment: PlannedSegment, placement: Rank) -> Inside:
    bounds = {
        tensor.name: tensor.shape
        for tensor in plan.job.tensors.values()
        if tensor.name in segment.inputs and tensor.is_open and tensor.shape is not None
    }
    found = look_at_stages(
        path,
        _settings(placement),
        GivenSizes(at_most=bounds) if bounds else NO_SIZES,
        _environment(placement),
    )
    return Inside(segment.rank, None, found)


def _with_litert(path: Path, plan: Plan, segment: PlannedSegment, placement: Rank) -> Inside:
    settings = _settings(placement)
    options = {name: value for name, value in settings.options.items() if name != "api"}
    delegate = options.pop("delegate", "")
    accelerator = settings.accelerator if has_own_process("litert", settings) else ""
    wanted = Wanted(delegate, accelerator, options)
    return Inside(segment.rank, look_inside(path, wanted, _environment(placement)), None)


_LOOKS = {"onnxruntime": _optimised, "litert": _with_litert}
"""Engines that can be looked into -> how."""


def _settings(placement: Rank) -> EngineSettings:
    """Return how a rank runs its sub-models, save that the CPU may help."""
    return replace(engine_settings(placement, exact=False), allow_fallback=True)


def _environment(placement: Rank) -> Mapping[str, str]:
    """Return the environment of a rank's process: what is set already stays."""
    return {**dict(placement.environment), **os.environ}


def inside_to_json(found: Iterable[Inside]) -> dict[str, Any]:
    """Return what was seen as a JSON object."""
    return {"format": FORMAT, "version": VERSION, "models": [asdict(each) for each in found]}
