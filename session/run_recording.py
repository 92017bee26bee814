"""What a run records: checked before it, brought to its place after it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from rankslice.backend.runtime import recording
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null
from rankslice.framework.quantities import bytes_text
from rankslice.session.own_folder import what_forbids
from rankslice.session.prepare import PreparedRun
from rankslice.session.recording_folder import submodel_bytes, why_not_replaced, write_recording

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
    tensors = sum(recording.most_bytes(job, rank.rank, wanted) for rank in job.ranks)
    place, here = _existing(target), prepared.folder.stat().st_dev
    copied = place.stat().st_dev != here  # else sub-models become links
    models = submodel_bytes(prepared.folder, prepared.plan, wanted.route) if copied else 0
    _check_room(place, tensors + models)
    is_file = options.results != STDOUT and not is_null(options.results)
    _check_room(_existing(options.results) if is_file else prepared.folder, tensors)
    text = f"the tensors of {frames_text(wanted.count)} will take at most {bytes_text(tensors)}"
    return replace(prepared, options=replace(options, record=target)), text


def _existing(path: Path) -> Path:
    """Return the folder above a path that is there."""
    return next((each for each in path.parents if each.is_dir()), Path("/"))


def _check_room(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        found = f"needs {bytes_text(nbytes)}, and {bytes_text(free)} are free in {folder}"
        hint = "record fewer frames (--record-frames), or make room"
        raise RankSliceError(Mistake(_OPTION, found, hint))


def keep_recording(prepared: PreparedRun, folder: Path, completed: int) -> None:
    """Bring what a run has recorded to where its options say.

    Raises:
        RankSliceError: a rank's file is not what it must be, or the folder cannot be written.
    """
    from rankslice.measurement.recording import read_tensors

    job = prepared.plan.job
    wanted = recording.recorded_frames(job, prepared.options)
    read_tensors(folder, job, wanted, completed)
    write_recording(
        prepared.options.record or folder,
        prepared.folder,
        folder,
        prepared.plan,
        wanted,
        completed,
        exact=prepared.options.exact,
    )
