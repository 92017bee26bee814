"""Deployment of packages: only what has changed travels; it is checked and published there."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.agent.jobs.folders import MAX_BASES, SHORT
from rankslice.backend.boards.answers import Done, Received
from rankslice.backend.boards.ssh import BoardShell, Copied, on_all
from rankslice.backend.package import VIDEO_STAND_INS
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.file_names import safe_file_name
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.reading.read_json import read_json

_SHAPE = "expected one that `rankslice build` made"


@dataclass(frozen=True, slots=True)
class Package:
    board: str
    folder: Path
    manifest_sha256: str
    files: dict[str, dict[str, Any]]
    """Name -> ``sha256`` and ``bytes``, as the manifest says."""
    without: str = ""
    """The board whose loss it is for; empty: it is for all boards."""

    @property
    def label(self) -> str:
        """The board's name, and what the package is for: ``edge01 (without edge02)``."""
        return f"{self.board} (without {self.without})" if self.without else self.board

    @property
    def nbytes(self) -> int:
        return sum(int(entry["bytes"]) for entry in self.files.values())

    @property
    def short_name(self) -> str:
        return self.manifest_sha256[:SHORT]

    def needs(self) -> dict[str, Any]:
        """Return the requirements that a board checks, and modules that may stand in for them."""
        stand_ins = {
            name: module for engine in ENGINES.values() for name, module in engine.stand_ins.items()
        } | VIDEO_STAND_INS
        wanted = (self.folder / "requirements.txt").read_text().split("\n")[:-1]
        return {"requirements": wanted, "stand_ins": stand_ins}

    def identity(self) -> dict[str, Any]:
        return {"manifest_sha256": self.manifest_sha256, "files": self.files}


@dataclass(frozen=True, slots=True)
class Deployed:
    board: str
    host: str
    without: str
    """The board for whose loss the package is; empty: it is for all boards."""
    state: str
    """``copied``, or ``there``: it had the package already."""
    manifest_sha256: str
    package_bytes: int
    files_sent: int
    bytes_sent: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def package_folder(out: Path, board: str) -> Path:
    return out / "packages" / safe_file_name(board)


def read_package(folder: Path, board: str, without: str = "") -> Package:
    """Return the package of a board, or that for the loss of another board, ``without``.

    Raises:
        RankSliceError: it does not exist, or differs from its manifest.
    """
    manifest = folder / "manifest.json"
    record = read_json(read_text(manifest, "a manifest"), str(manifest), _SHAPE)
    files = record.get("files") if isinstance(record, dict) else None
    if not isinstance(files, dict) or not all(map(_is_entry, files.items())):
        raise RankSliceError(Mistake(str(manifest), "this is not a manifest", _SHAPE))
    for name, entry in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            found = "is missing, or has another size than the manifest says"
            raise RankSliceError(Mistake(str(path), found, "build again"))
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    return Package(board, folder, digest, files, without)


def _is_entry(item: tuple[Any, Any]) -> bool:
    name, entry = item
    path = Path(name)
    inside = not path.is_absolute() and ".." not in path.parts and "\0" not in name
    return inside and isinstance(entry, dict) and {"sha256", "bytes"} <= entry.keys()


def deploy_packages(
    work: Sequence[tuple[BoardShell, Package]],
    *,
    environment: bool = False,
    also: Sequence[str] = (),
    beside: int = 0,
    on_step: Callable[[str, str], None] = lambda board, step: None,
) -> tuple[Deployed, ...]:
    """Deploy packages to their boards, several boards at a time; return what was done, by board.

    Args:
        work: boards and their packages; those of a board are deployed one after the other.
        environment: also make each board's virtual environment.
        also: what pip installs there besides the package's requirements.
        beside: how many packages each board keeps besides these and the usual number.

    Raises:
        RankSliceError: some boards failed, each with its reason; the others have their packages.
    """
    boards: dict[str, list[tuple[BoardShell, Package]]] = defaultdict(list)
    for shell, package in work:
        boards[package.board].append((shell, package))

    def deploy(shell: BoardShell, package: Package) -> Deployed:
        begin = time.monotonic()
        together = len(boards[package.board]) + beside
        staging = f"{package.short_name}.{secrets.token_hex(8)}"
        details = {**package.identity(), "beside": together, "staging": staging}
        on_step(package.label, "asking")
        answer = shell.ask(Received, "receive", **details)
        copied = Copied(0, 0)
        if answer.state == "wanted":
            on_step(package.label, "copying")
            names, bases = [*package.files, "manifest.json"], answer.bases[:MAX_BASES]
            copied = shell.put(package.folder, f"staging/{staging}", files=names, bases=bases)
            on_step(package.label, "checking")
            shell.ask(Done, "commit", **details)
        if environment:
            on_step(package.label, "installing")
            shell.ask(Done, "make_environment", also=list(also), **details)
        seconds = time.monotonic() - begin
        on_step(package.label, "done")
        return Deployed(
            board=package.board,
            host=shell.login.host,
            without=package.without,
            state="copied" if answer.state == "wanted" else "there",
            manifest_sha256=package.manifest_sha256,
            package_bytes=package.nbytes,
            files_sent=copied.files,
            bytes_sent=copied.sent_bytes,
            seconds=round(seconds, 3),
        )

    done = on_all(lambda items: [deploy(*item) for item in items], list(boards.values()))
    return tuple(deployed for board in done for deployed in board)
