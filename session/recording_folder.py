"""A folder of recorded tensors: the plan, the sub-models that ran, and a file of each rank."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from rankslice.backend.package import link_or_copy
from rankslice.backend.runtime import recording
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.files.new_folder import (
    new_folder,
    other_entries,
    other_maker,
    what_forbids,
)
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.files.output_file import STDOUT, is_null
from rankslice.framework.plan import Plan, PlannedSegment, plan_from_json, plan_to_json
from rankslice.framework.reading.records import Only, read_document
from rankslice.framework.wording import bytes_text, quoted
from rankslice.session.build_folder import PLAN
from rankslice.session.prepare import PreparedRun

RECORD = "recording.json"
FORMAT = "rankslice-recording"
VERSION = 2
_SUBMODELS = "submodels"
_MADE_BY = "rankslice run --record"

_Count = Annotated[int, Only(lambda value: 0 <= value < 1 << 48, "0 or more")]


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    job_sha256: str
    first: _Count
    """Number of the first frame that was to be recorded."""
    frames: _Count
    """How many were."""
    completed: _Count
    """How many frames the stream had."""
    route: Annotated[int, Only(range(2).__contains__, "0 or 1")]
    """0: the usual one; 1: that for a surge."""
    exact: bool
    files: tuple[tuple[str, str], ...]
    """Each other file but the plan's, and the SHA-256 of its bytes."""

    @property
    def wanted(self) -> recording.RecordedFrames:
        return recording.RecordedFrames(self.first, self.frames, self.route)

    @property
    def numbers(self) -> range:
        return range(self.first, max(self.first, min(self.completed, self.first + self.frames)))


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    path: Path
    plan: Plan
    job: Job
    info: RecordingInfo

    def check(self, name: str) -> Path:
        path, known = self.path / name, dict(self.info.files)
        try:
            digest = file_sha256(path)
        except OSError as error:
            raise RankSliceError(Mistake(str(path), f"cannot be read: {error.strerror}")) from None
        if known.get(name) != digest:
            raise RankSliceError(Mistake(str(path), "has changed since it was recorded"))
        return path


def submodel_names(folder: Path, segment: PlannedSegment) -> Iterator[str]:
    """Yield the files of a sub-model, relative to the folder in which it is."""
    yield segment.file
    if (folder / f"{segment.file}.data").is_file():
        yield f"{segment.file}.data"


def why_not_replaced(folder: Path) -> str:
    """Return a reason not to replace a folder, as it is more than a recording; empty: none."""
    if not any(folder.iterdir()):
        return ""
    if found := other_maker(folder, RECORD, FORMAT, "run with --record"):
        return f"exists and {found}"
    return other_entries(folder, _is_own)


def _is_own(name: str) -> bool:
    return name in (RECORD, PLAN, _SUBMODELS) or name.startswith(recording.NAME)


def read_recording(path: Path) -> RecordingFolder:
    """Return a folder of recorded tensors; its tensors and sub-models are not read yet.

    Raises:
        RankSliceError: it is none, or its plan is another one.
    """
    file = path / RECORD
    if not file.is_file():
        found = f"has no {RECORD}" if path.is_dir() else "no such folder"
        raise RankSliceError(Mistake(str(path), found, f"make one with: {_MADE_BY}"))
    text = read_text(file, "a recording")
    info = read_document(
        RecordingInfo, text, str(file), "recording", VERSION, _MADE_BY, "record again"
    )
    plan_file = path / PLAN
    plan = plan_from_json(read_text(plan_file, "a plan"), str(plan_file))
    if plan.job.sha256 != info.job_sha256:
        raise RankSliceError(Mistake(str(plan_file), "has changed since it was recorded"))
    if info.route >= len(plan.routes):
        raise RankSliceError(Mistake(str(file), "names a second route, and the plan has one"))
    known = dict(info.files)
    if missing := [name for name in _names(plan, info.route) if name not in known]:
        raise RankSliceError(Mistake(f"{file}: files", f"{quoted(missing[0])} is missing"))
    return RecordingFolder(path, plan, plan.job, info)


def _names(plan: Plan, route: int) -> Iterator[str]:
    yield from (segment.file for segment in plan.routes[route].segments)
    yield from (f"{recording.NAME}{rank}" for rank in range(len(plan.ranks)))


_OPTION = "--record"


def prepare_recording(prepared: PreparedRun) -> tuple[PreparedRun, str]:
    """Return a run whose options ask for a recording, and what will be written, in words.

    Raises:
        RankSliceError: the folder cannot be made, there is no room for it, or frames may change
            the route.
    """
    target = Path(os.path.abspath(prepared.options.record or ""))  # noqa: PTH100 - links stay
    if found := what_forbids(target, why_not_replaced):
        raise RankSliceError(Mistake(str(target), found, f"choose another {_OPTION}"))
    job, options = prepared.plan.job, prepared.options
    if prepared.source.frames is not None:
        most = max(1, min(options.record_frames, prepared.source.frames))
        options = replace(options, record_frames=most)
    try:
        wanted = recording.recorded_frames(job, options)
    except JobError as error:
        raise RankSliceError(Mistake(_OPTION, str(error))) from None
    tensors = sum(recording.max_bytes(job, rank.rank, wanted) for rank in job.ranks)
    place, here = _existing(target), prepared.folder.stat().st_dev
    models = 0
    if place.stat().st_dev != here:  # else sub-models become links
        models = sum(
            (prepared.folder / name).stat().st_size
            for segment in prepared.plan.routes[wanted.route].segments
            for name in submodel_names(prepared.folder, segment)
        )
    _check_room(place, tensors + models)
    is_file = options.results != STDOUT and not is_null(options.results)
    _check_room(_existing(options.results) if is_file else prepared.folder, tensors)
    text = f"the tensors of {frames_text(wanted.count)} will take at most {bytes_text(tensors)}"
    return replace(prepared, options=replace(options, record=target)), text


def _existing(path: Path) -> Path:
    return next((folder for folder in path.parents if folder.is_dir()), Path("/"))


def _check_room(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        found = f"needs {bytes_text(nbytes)}, and {bytes_text(free)} are free in {folder}"
        hint = "record fewer frames (--record-frames), or make room"
        raise RankSliceError(Mistake(_OPTION, found, hint))


def keep_recording(prepared: PreparedRun, ran: Path, completed: int) -> None:
    """Make the folder that the options of a run name, of what its ranks have recorded in ``ran``.

    Files of the ranks are moved, sub-models are linked.
    """
    from rankslice.measurement.recorded_tensors import read_tensors

    plan, build, options = prepared.plan, prepared.folder, prepared.options
    wanted = recording.recorded_frames(plan.job, options)
    read_tensors(ran, plan.job, wanted, completed)
    target = options.record or ran
    with new_folder(target, replaces=why_not_replaced, kind="recordings") as folder:
        names: list[str] = []
        for segment in plan.routes[wanted.route].segments:
            for name in submodel_names(build, segment):
                link_or_copy(build / name, folder / name)
                names.append(name)
        for rank in range(len(plan.ranks)):
            names.append(f"{recording.NAME}{rank}")
            shutil.move(ran / names[-1], folder / names[-1])
        (folder / PLAN).write_text(plan_to_json(plan), encoding="ascii")
        files = {name: file_sha256(folder / name) for name in names}
        info = RecordingInfo(
            job_sha256=plan.job.sha256,
            first=wanted.first,
            frames=wanted.count,
            completed=completed,
            route=wanted.route,
            exact=options.exact,
            files=tuple(files.items()),
        )
        record = {"format": FORMAT, "version": VERSION, **asdict(info), "files": files}
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="ascii")
