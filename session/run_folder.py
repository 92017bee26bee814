"""A folder for the files of one run, which no other run reads or writes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_PREFIX = ".rankslice-run-"


@contextmanager
def run_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder of mode 0700 in ``parent``; it is removed when the block ends.

    While the block lasts the folder is locked, so that nobody takes it for one whose process was
    killed: such folders are removed by the next run.

    Raises:
        OSError: it cannot be made.
    """
    for folder in _run_folders(parent):
        _remove_dead(folder)
    folder, descriptor = _locked(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other run puts its files into ``folder``, so that those of one run stay.

    Where the folder cannot be locked, nothing is waited for.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def living_runs(parent: Path) -> list[Path]:
    """Return the folders of runs that go on in ``parent``; remove those of killed ones."""
    return [folder for folder in _run_folders(parent) if not _remove_dead(folder)]


def _run_folders(parent: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in parent.glob(f"{_PREFIX}*") if _is_own_folder(path)]
    return []


def _is_own_folder(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _locked(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Before it is locked another run may take it for one of a killed process.
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _is_ours(folder, descriptor):
                return folder, descriptor
            os.close(descriptor)


def _is_ours(folder: Path, descriptor: int) -> bool:
    try:
        _lock(descriptor)
        return os.path.samestat(os.fstat(descriptor), folder.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _lock(descriptor: int) -> bool:
    """Lock a folder; return ``False`` where its file system has no locks.

    Raises:
        BlockingIOError: another process has locked it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _remove_dead(folder: Path) -> bool:
    """Remove the folder of a run whose process was killed; return whether it was one."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return not folder.exists()
    try:
        is_dead = _lock(descriptor)
    except BlockingIOError:
        is_dead = False
    if is_dead:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
    return is_dead
