"""Files that commands write: checked before the work, replaced as a whole.

A file is written under another name in the same folder and then renamed, so it is complete or
absent. It may replace a regular file of the same kind, and nothing else.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import harmless

STDOUT = Path("-")
"""Stands for standard output."""
TERMINAL = Path("/dev/tty")
"""Stands for the terminal, where messages go."""

_STDOUT_NAMES = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file, recognised by its first bytes after white space."""

    name: str
    beginning: re.Pattern[bytes]


JSON = Kind("a JSON file", re.compile(rb"[{[]"))
RESULT = Kind(
    "a JSON result",
    re.compile(
        rb'(?!\{\s*"format":\s*"rankslice-(profile|plan|benchmark)"|\{\s*"[^"]*_(cpu|gpu|npu)[^"]*"\s*:)[{[]'
    ),
)
"""Not a profile, plan, benchmark or mapping, which are worth keeping."""
PROFILE = Kind("a profile", re.compile(rb'\{\s*"format":\s*"rankslice-profile"'))
BENCH = Kind("a benchmark", re.compile(rb'\{\s*"format":\s*"rankslice-benchmark"'))
SVG = Kind("an SVG picture", re.compile(rb"<svg|<\?xml"))
PAGE = Kind(
    "a page of RankSlice",
    re.compile(
        rb'<!DOCTYPE html>\s*<html[^>]*>\s*<head>\s*<meta name="generator" content="RankSlice">'
    ),
)
FREQUENCIES = Kind("a table of frequencies", re.compile(rb"frequency_mhz,"))
CLASSES = Kind("a table of classes", re.compile(rb"frame,"))
OPERATORS = Kind(
    "a table of operators", re.compile(rb'board,accelerator,engine,operator,|\{\s*"operators"')
)
RESULTS = Kind("a results file", re.compile(rb"rankslice results "))
LINES = Kind("a file of --output", re.compile(rb'\{"frame": '))
LIVE = Kind("a file of --live", re.compile(rb'\{"format": "rankslice-live"'))
NPZ = Kind("an .npz file", re.compile(rb"PK\x03\x04|PK\x05\x06"))
VIDEO = Kind("a video", re.compile(rb"[\s\S]{4}ftyp|RIFF"))
PERFETTO = Kind("a trace for Perfetto", re.compile(rb"[\s\S]{0,2}P\x01h\x01"))
"""As its first packet begins, which tells nothing but where a sequence of packets starts."""
PLATFORM = Kind(
    "a platform file",
    re.compile(rb"(?:(?:#[^\n]*|---[ \t\r]*|[ \t\r]*)\n)*(boards|links)[ \t]*:"),
)
_MAX_BEGINNING = 1 << 16
"""Platform files may begin with comments."""


def check_output(
    path: Path,
    option: str,
    kind: Kind | None = None,
    *,
    force: bool | None = None,
    may_be_stream: bool = True,
) -> Path:
    """Check the file that an option names; return its path, :data:`STDOUT` for any name of it.

    Args:
        kind: of the files that may be replaced; ``None``: any regular file.
        force: ``False``: no file may be replaced without ``--force``.
        may_be_stream: whether it may go to standard output or ``/dev/null``.
    """
    elsewhere = f"choose another {option}"
    if str(path) in _STDOUT_NAMES or is_null(path):
        if not may_be_stream:
            raise RankSliceError(Mistake(str(path), "is a stream, and a file is needed", elsewhere))
        if is_null(path):
            return path
        if sys.stdout is None:
            raise RankSliceError(Mistake("standard output", "is closed", elsewhere))
        return STDOUT
    try:
        found = _what_forbids(path, kind)
        if not found and force is False and os.path.lexists(path):
            found, elsewhere = "exists", f"{elsewhere}, or give --force"
        if not found:
            _try_to_write(path)
    except FileNotFoundError:
        raise RankSliceError(Mistake(str(path.parent), "no such folder", "make it first")) from None
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
    except ValueError:  # a NUL
        found = "is not a file name"
    if found:
        raise RankSliceError(Mistake(str(path), found, elsewhere))
    return path


def is_null(path: Path) -> bool:
    with suppress(OSError, ValueError):
        status = path.lstat()
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)
    return False


def write_output(path: Path, text: str | Iterable[str], option: str) -> None:
    """Write a file that :func:`check_output` allowed, whole or not at all."""
    pieces = [text] if isinstance(text, str) else text
    if path == STDOUT:
        is_seen = sys.stdout.isatty()
        sys.stdout.writelines(map(harmless, pieces) if is_seen else pieces)
        return
    _write(path, (piece.encode(errors="backslashreplace") for piece in pieces), option)


def write_json(file: Path | None, record: Mapping[str, Any]) -> None:
    """Write what ``--json`` asks for; ``None``: nowhere."""
    if file is not None:
        write_output(file, json.dumps(record, indent=1) + "\n", "--json")


def csv_lines(rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield rows as lines of CSV; the first one has the names of the columns."""
    for row in rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        yield text.getvalue()


def write_bytes(path: Path, content: bytes, option: str) -> None:
    """Write a file that is no text, as :func:`write_output` does."""
    if path == STDOUT:
        sys.stdout.buffer.write(content)
    else:
        _write(path, (content,), option)


def _write(path: Path, pieces: Iterable[bytes], option: str) -> None:
    if is_null(path):
        return
    try:
        with whole_file(path) as file:
            file.writelines(pieces)
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
        raise RankSliceError(Mistake(str(path), found, f"choose another {option}")) from None


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that becomes ``path`` if the block succeeds; otherwise nothing changes.

    Until then it is in the same folder. It gets the permissions of the file that it replaces.

    Raises:
        OSError: it cannot be written, or what is not a regular file has its name by now.
    """
    draft = _draft(path)
    try:
        with os.fdopen(_create(draft), "wb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.lstat().st_mode))
            yield file
        if found := _what_forbids(path, None):
            raise OSError(0, found)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")


def _create(draft: Path) -> int:
    return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _try_to_write(path: Path) -> None:
    draft = _draft(path)
    os.close(_create(draft))
    draft.unlink()


def _what_forbids(path: Path, kind: Kind | None) -> str:
    """Return the reason why a path must not be replaced, as a clause; empty: it may be."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ""
    if not stat.S_ISREG(mode):
        return _NOT_ORDINARY.get(stat.S_IFMT(mode), "is not a regular file")
    if not os.access(path, os.W_OK):
        is_disk = os.statvfs(path).f_flag & os.ST_RDONLY
        return f"cannot be written: {os.strerror(errno.EROFS if is_disk else errno.EACCES)}"
    if kind is None or _begins_as(path, kind):
        return ""
    return f"already exists and is not {kind.name}"


_NOT_ORDINARY = {
    stat.S_IFDIR: "is a folder, not a file",
    stat.S_IFLNK: "is a link, which is not followed",
    stat.S_IFIFO: "is a pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


def _begins_as(path: Path, kind: Kind) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        beginning = file.read(_MAX_BEGINNING).removeprefix(b"\xef\xbb\xbf").lstrip()
    return not beginning or kind.beginning.match(beginning) is not None
