"""Folders that no other user of the machine can enter, and the removal of unused ones.

Each user of a folder holds its lock, which the kernel releases however a process ends. The last
user removes the folder; what killed processes left is removed at the next start.

It needs only the standard library, as watchdogs and boards load it alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

_PREFIX = "rankslice-"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
"""What ``mkdtemp`` makes of the prefix."""
_LOCK = ".rankslice-lock"
"""A folder without it is not ours, whatever its name."""
_YOUNG_S = 60.0
"""Younger folders are not swept: their makers may not hold the lock yet."""

_TRY_EVERY_S = 0.05

_MEMORY = Path("/dev/shm")
_MIN_BYTES = 32 << 20
"""The MPI library ends a rank that finds no room when it touches its shared memory there."""
_MIN_FILES = 100

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PrivateFolder:
    """A private folder of this user, in use until it is released."""

    def __init__(self, path: Path, descriptor: int, lock: int) -> None:
        self.path = path
        self.descriptor = descriptor
        """Of the folder; a path could come to name another one."""
        self.lock = lock
        """A descriptor: the folder is in use as long as a process has it open."""

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *ended: object) -> None:
        self.release()

    def release(self, patience_s: float = 0.0) -> None:
        """Release the folder; remove it with its contents if nobody else uses it.

        ``patience_s``: how long to wait for other users that are about to end.
        """
        deadline = time.monotonic() + patience_s
        while not (is_last := _has_alone(self.lock)) and time.monotonic() < deadline:
            time.sleep(_TRY_EVERY_S)
        if is_last:
            _remove(self.path)
        os.close(self.lock)
        os.close(self.descriptor)


def _has_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def in_memory(min_bytes: int = _MIN_BYTES) -> Path:
    """Choose a folder in memory, or that for temporary files if memory has no room."""
    with contextlib.suppress(OSError):
        room = os.statvfs(_MEMORY)
        has_room = room.f_bavail * room.f_frsize >= min_bytes
        has_names = not room.f_files or room.f_favail >= _MIN_FILES
        if has_room and has_names and os.access(_MEMORY, os.W_OK | os.X_OK):
            return _MEMORY
    return Path(tempfile.gettempdir())


def make_private(parent: Path | None = None) -> PrivateFolder:
    """Make a folder with a random name; remove unused folders beside it.

    ``parent``: the folder for temporary files by default.

    Raises:
        OSError: there is no room, or no such folder.
    """
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent)
    return _open(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)), os.O_CREAT)


def make_shared(name: str) -> PrivateFolder | None:
    """Make or open a folder that all processes of this user share by a name; ``None``: none can.

    Its name can be guessed, so it lies in a folder of this user, which is made if missing. If
    another user has taken that name, the next candidate is used.
    """
    own = f"{_PREFIX}user-{os.geteuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    parents = [in_memory(), *([Path(runtime)] if runtime else []), Path(tempfile.gettempdir())]
    for parent in dict.fromkeys(parents):
        with contextlib.suppress(OSError):
            return _make_inside(parent / own, f"{_PREFIX}{name}")
    return None


def _make_inside(parent: Path, name: str) -> PrivateFolder:
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o700)
    outside = _open_folder(parent)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=outside)
    finally:
        os.close(outside)
    sweep(parent)
    return _open(parent / name, os.O_CREAT)


def open_private(path: Path) -> PrivateFolder:
    """Open a folder that this module made.

    It is removed after its last use, so its name and lock are checked.

    Raises:
        OSError: it is not a folder, or a link, or another user may enter it.
    """
    if not _NAME.fullmatch(path.name):
        raise PermissionError(errno.EACCES, "is not the folder of a job", str(path))
    return _open(path, 0)


def _open(path: Path, make_lock: int) -> PrivateFolder:
    """Use a folder from now on; ``os.O_CREAT``: its lock may be missing."""
    with contextlib.ExitStack() as opened:
        descriptor = _open_folder(path)
        opened.callback(os.close, descriptor)
        lock = os.open(_LOCK, _FILE | make_lock, 0o600, dir_fd=descriptor)
        opened.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        opened.pop_all()
    return PrivateFolder(path, descriptor, lock)


def _open_folder(path: Path) -> int:
    """Open a folder of this user's own.

    Raises:
        OSError: it is not a folder, or a link, or another user may enter it.
    """
    descriptor = os.open(path, _FOLDER)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.close(descriptor)
        reason = "belongs to another user, or other users may access it"
        raise PermissionError(errno.EACCES, reason, str(path))
    return descriptor


def sweep(parent: Path) -> None:
    """Remove the unused private folders in a folder."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_unused(Path(entry.path))


def _remove_unused(path: Path) -> None:
    descriptor = _open_folder(path)
    try:
        if abs(time.time() - os.fstat(descriptor).st_mtime) < _YOUNG_S:
            return
        lock = os.open(_LOCK, _FILE, dir_fd=descriptor)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder, its lock last: what a process still writes into it can be removed later."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink()
        if [entry.name for entry in path.iterdir()] == [_LOCK]:
            shutil.rmtree(path, ignore_errors=True)
