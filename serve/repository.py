"""The folders that are served: versions of models, their jobs, and what changes in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.build_folder import DRIVER, PLAN, is_build_folder
from rankslice.session.prepare import PreparedRun
from rankslice.session.shared_options import is_number

if TYPE_CHECKING:
    from rankslice.session.pipeline import Pipeline

ONLY_VERSION = "1"
"""Of a build folder that is served by itself."""

State: TypeAlias = "tuple[tuple[str, int, int, int], ...]"
"""Files of a build folder that a job runs: name, inode, time of the last change and size."""


@dataclass(frozen=True, slots=True)
class Version:
    """A build folder that is served."""

    folder: Path
    """As the user named it: a link may lead elsewhere later."""
    model: str = ""
    """The name of the folder that has it; empty: it is the name of the model's file."""
    number: str = ONLY_VERSION


def find_versions(folders: Sequence[Path]) -> list[Version]:
    """Return what folders have: a build folder, ``NUMBER/`` folders, or ``NAME/NUMBER/`` folders.

    What is none of these is returned as if it were a build folder, which cannot be opened then.
    """
    versions: list[Version] = []
    for folder in folders:
        numbered = [] if is_build_folder(folder) else [*_in_folder(folder)]
        versions += numbered or [Version(folder)]
    return versions


def _in_folder(folder: Path) -> Iterator[Version]:
    own = [*_numbered(folder)]
    yield from own
    with suppress(OSError):
        for model in sorted(folder.iterdir() if not own else ()):
            yield from _numbered(model)


def _numbered(folder: Path) -> Iterator[Version]:
    with suppress(OSError):
        entries = [entry for entry in folder.iterdir() if is_version(entry.name)]
        for entry in sorted(entries, key=lambda entry: int(entry.name)):
            if is_build_folder(entry):
                yield Version(entry, folder.absolute().name, entry.name)


def is_version(name: str) -> bool:
    return is_number(name) and not name.startswith("0")


def state_of(folder: Path) -> State:
    """Return what tells whether another job is in a build folder; empty: it is not there."""
    files = [folder / PLAN, folder / DRIVER, *(folder / "submodels").glob("*")]
    state = []
    for file in sorted(files):
        with suppress(OSError):
            about = file.stat()
            state.append((file.name, about.st_ino, about.st_mtime_ns, about.st_size))
    return tuple(state)


class Changes:
    """What changes in folders. A change counts once it is the same twice: copies take a while.

    A version is gone when its folder is; one that is no build folder is being copied.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._taken = {version: state_of(version.folder) for version in find_versions(folders)}
        self._seen = dict(self._taken)
        self._absent: set[Version] = set()

    def take(self, *, at_once: bool = False) -> tuple[list[Version], list[Version], list[Version]]:
        """Return the versions that are new, have changed, and are gone since the last call.

        ``at_once``: a change counts that is seen for the first time.
        """
        seen = {version: state_of(version.folder) for version in find_versions(self._folders)}
        settled = {
            version
            for version, state in seen.items()
            if at_once or self._seen.get(version) == state
        }
        absent = {
            version for version in self._taken if version.model and not version.folder.is_dir()
        }
        gone = [
            version
            for version in self._taken
            if version in absent and (at_once or version in self._absent)
        ]
        self._absent = absent
        self._seen = seen
        new = [version for version in settled if version.model and version not in self._taken]
        changed = [
            version
            for version in settled
            if seen[version] and self._taken.get(version, seen[version]) != seen[version]
        ]
        self._taken |= {version: seen[version] for version in (*new, *changed)}
        for version in gone:
            del self._taken[version]
        return new, changed, gone

    def is_settled(self, version: Version) -> bool:
        """Return whether a folder is still as it was when its change was taken."""
        return self._taken.get(version) == state_of(version.folder)


@dataclass
class ServedJob:
    """The job of a version. Its methods block."""

    version: Version
    start: Callable[[Path], Pipeline]
    """Starts the job of a folder, and does not wait until it is ready."""
    prepare: Callable[[Path], PreparedRun]
    """Checks a folder whose job is to be started, as far as that is possible beside another one."""
    pipeline: Pipeline | None = None
    _beside: list[Pipeline] = field(default_factory=list)
    """That are about to take its place."""
    _is_over: bool = False
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> Pipeline:
        """Start the job, after the end of the one before."""
        if self.pipeline is not None:
            self.pipeline.close()
        pipeline = self._started()
        self.pipeline = pipeline
        self._beside.remove(pipeline)
        return pipeline

    def open_beside(self) -> Pipeline:
        """Start the job beside the one before, and wait until it is ready.

        Raises:
            RankSliceError: it does not get ready; the one before goes on.
        """
        pipeline = self._started()
        try:
            pipeline.wait_until_ready()
        except BaseException:
            pipeline.abort()
            self._beside.remove(pipeline)
            raise
        return pipeline

    def take(self, pipeline: Pipeline) -> None:
        """End the job before; the one that was opened beside it has taken its place."""
        old, self.pipeline = self.pipeline, pipeline
        self._beside.remove(pipeline)
        if old is not None:
            old.close()

    def _started(self) -> Pipeline:
        pipeline = self.start(self.version.folder)
        with self._changing:
            self._beside.append(pipeline)
            is_over = self._is_over
        if is_over:
            pipeline.abort()
            raise RankSliceError(Mistake(str(self.version.folder), "the server has ended"))
        return pipeline

    def check(self) -> None:
        """Check whether the folder can take the place of the one whose job runs."""
        prepared = self.prepare(self.version.folder)
        job, running = prepared.plan.job, self.pipeline
        if running is None:
            return
        names = ("", "") if self.version.model else (running.name, Path(job.model).stem)
        for what, before, after in (
            ("name", *names),
            ("inputs", _shown(running.inputs), _shown(job.inputs)),
            ("outputs", _shown(running.outputs), _shown(job.outputs)),
        ):
            if before != after:
                mistake = f"the {what} of its model changed: {after}, before {before}"
                raise RankSliceError(Mistake(str(prepared.folder), mistake, "restart the server"))

    def close(self) -> None:
        """End the job, after its frames."""
        if self.pipeline is not None:
            self.pipeline.close()

    def abort(self) -> None:
        with self._changing:
            self._is_over = True
        for pipeline in (self.pipeline, *self._beside):
            if pipeline is not None:
                pipeline.abort()


def _shown(specs: Sequence[Tensor]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)
