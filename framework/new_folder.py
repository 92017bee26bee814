"""A folder that appears complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError

__all__ = ["new_folder"]


@contextmanager
def new_folder(path: Path, *, replaces: str | None = None) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well.

    The temporary folder lies beside ``path``, hidden, and is named after this process; what
    a killed process left there is removed by the next one. An old folder is replaced in two
    renames, so its content is never mixed with the new.

    Args:
        path: the folder to make.
        replaces: name of a file that an existing folder must contain to be replaced; ``None``:
            an existing folder is an error.

    Raises:
        RankSliceError: ``path`` exists and may not be replaced, or cannot be written.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link at the end
    temporary = _beside(path, os.getpid())
    try:
        _make(temporary, path, replaces)
        yield temporary
        _put_in_place(temporary, path)
    except OSError as error:
        place = error.filename or path
        raise RankSliceError(Mistake(str(place), f"cannot be written: {error.strerror}")) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make(temporary: Path, path: Path, replaces: str | None) -> None:
    try:
        _check_target(path, replaces)
        _remove_leftovers(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise RankSliceError(Mistake(str(path), f"cannot be written: {error.strerror}")) from None


def _put_in_place(temporary: Path, path: Path) -> None:
    if not path.exists():
        temporary.rename(path)
        return
    old = temporary / ".replaced"
    try:
        path.rename(old)
        temporary.rename(path)
    except BaseException:  # nor may a signal cost the old folder
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    shutil.rmtree(path / ".replaced")


def _check_target(path: Path, replaces: str | None) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if replaces is None:
        raise RankSliceError(Mistake(str(path), "exists", "choose another --out, or give --force"))
    if path.is_symlink() or not (path / replaces).is_file():
        raise RankSliceError(
            Mistake(
                str(path), f"exists and has no {replaces}", "--force replaces build folders only"
            )
        )


def _beside(path: Path, process: int) -> Path:
    return path.with_name(f".{path.name}.{process}.partial")


def _remove_leftovers(path: Path) -> None:
    for folder in path.parent.glob(f".{_escaped(path.name)}.*.partial"):
        process = folder.name.split(".")[-2]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
