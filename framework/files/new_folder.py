"""A folder that appears complete or not at all, and whether a command may replace one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import open_ordinary
from rankslice.framework.wording import listed

_ELSEWHERE = "choose another folder"


@contextmanager
def new_folder(
    path: Path, *, replaces: Callable[[Path], str] | None = None, kind: str = "build folders"
) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well.

    The temporary folder lies beside ``path``, hidden, and is named after this process; what
    a killed process left there is removed by the next one. An old folder is replaced in two
    renames, so its content is never mixed with the new.

    Args:
        replaces: returns why an existing folder must not be replaced, as a clause, or an empty
            string; ``None``: an existing folder is an error.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link at the end
    temporary = _beside(path, os.getpid())
    above = [folder for folder in path.parents if not os.path.lexists(folder)]
    try:
        _make(temporary, path, replaces, kind)
        yield temporary
        _put_in_place(temporary, path)
    except OSError as error:
        where = str(error.filename or path).replace(temporary.name, path.name)
        raise RankSliceError(_unwritable(where, error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.lexists(path):
            _remove_empty(above)


def _make(temporary: Path, path: Path, replaces: Callable[[Path], str] | None, kind: str) -> None:
    try:
        _check_target(path, replaces, kind)
        _remove_leftovers(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except FileExistsError as error:
        raise RankSliceError(Mistake(str(error.filename), "is a file", _ELSEWHERE)) from None
    except OSError as error:
        raise RankSliceError(_unwritable(path, error)) from None


def _unwritable(where: str | Path, error: OSError) -> Mistake:
    return Mistake(str(where), f"cannot be written: {error.strerror}", _ELSEWHERE)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove the parent folders that were made, from the lowest up, if they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _put_in_place(temporary: Path, path: Path) -> None:
    if not path.exists():
        temporary.rename(path)
        return
    old = temporary / ".replaced"
    try:
        path.rename(old)
        temporary.rename(path)
    except BaseException:  # a signal must not cost the old folder either
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    shutil.rmtree(path / ".replaced")


def _check_target(path: Path, replaces: Callable[[Path], str] | None, kind: str) -> None:
    if path.is_symlink():
        raise RankSliceError(Mistake(str(path), "is a link", _ELSEWHERE))
    if not path.exists():
        return
    if not path.is_dir():
        raise RankSliceError(Mistake(str(path), "is a file", _ELSEWHERE))
    if replaces is None:
        raise RankSliceError(Mistake(str(path), "exists", "choose another --out, or give --force"))
    if found := replaces(path):
        raise RankSliceError(Mistake(str(path), found, f"--force replaces {kind} only"))


def _beside(path: Path, process: int) -> Path:
    return path.with_name(f".{path.name}.{process}.partial")


def _remove_leftovers(path: Path) -> None:
    for folder in path.parent.glob(f".{_escaped(path.name)}.*.partial"):
        process = folder.name.split(".")[-2]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def what_forbids(folder: Path, why_not_replaced: Callable[[Path], str]) -> str:
    """Return the reason why a folder may not be made or replaced, as a clause; empty: it may."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link at the end
    if folder.is_symlink():
        return "is a link, which is not followed"
    if folder.exists():
        return why_not_replaced(folder) if folder.is_dir() else "is a file"
    parent = next(parent for parent in folder.parents if os.path.lexists(parent))
    if not parent.is_dir():
        return f"lies in {parent}, which is not a folder"
    return "" if os.access(parent, os.W_OK) else "cannot be written: Permission denied"


def other_maker(folder: Path, record: str, format: str, made: str) -> str:
    """Return the reason why a folder is not a command's own, as a clause; empty: it may be.

    The command writes a JSON ``record`` there, which begins with its ``format``; it ``made`` a
    "build", say.
    """
    try:
        with os.fdopen(open_ordinary(folder / record, f"a {made}"), "rb") as file:
            beginning = file.read(200)
    except (OSError, RankSliceError):
        return f"has no {record}"
    return "" if f'"{format}"'.encode() in beginning else f"has a {record} that no {made} made"


def other_entries(folder: Path, is_own: Callable[[str], bool]) -> str:
    """List the entries of a folder that are not a command's own, as a clause; empty: none."""
    foreign = sorted(path.name for path in folder.iterdir() if not is_own(path.name))
    return f"also holds {listed(foreign)}: move it elsewhere" if foreign else ""
