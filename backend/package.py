"""Packages: what each board gets, with driver, runtime, sub-models and a manifest."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from rankslice.backend.codegen import render_driver
from rankslice.backend.runtime.engines.onnxruntime_providers import is_library
from rankslice.backend.runtime.job import Rank
from rankslice.backend.wheels import AddWheels
from rankslice.framework.engines import ENGINES
from rankslice.framework.files.file_names import safe_file_name
from rankslice.framework.files.hashing import FileHashes
from rankslice.framework.plan import Plan, plan_to_json

VIDEO_REQUIREMENTS = ("opencv-python-headless>=4.8", "pillow>=10.1")
"""What pip installs on a board where frames of videos and cameras enter."""
VIDEO_STAND_INS = {"opencv-python-headless": "cv2"}
"""A package of these -> a module that will do instead: distributions have OpenCV, too."""

COMPRESSION_REQUIREMENTS = ("zstandard>=0.20",)
"""What pip installs on a board that sends or receives compressed messages."""

_COMMON_FILES = (
    "driver.py",
    "sender.json",
    "receiver.json",
    "rankfile",
    "hostfile",
)


def write_driver(folder: Path, plan: Plan, schedule: str = "") -> None:
    """Write ``plan.json``, ``driver.py`` and ``runtime/`` into ``folder``.

    ``schedule``: of the first frames, for the driver's docstring.
    """
    (folder / "plan.json").write_text(plan_to_json(plan), encoding="ascii")
    driver = folder / "driver.py"
    driver.write_text(render_driver(plan, schedule), encoding="ascii")
    driver.chmod(0o755)
    _copy_runtime(folder / "runtime")


def write_packages(
    folder: Path,
    plan: Plan,
    *,
    video: bool = False,
    archive: bool = False,
    add_wheels: AddWheels | None = None,
    hashes: FileHashes | None = None,
) -> tuple[Path, ...]:
    """Write ``packages/<board>/`` for each board of the plan; return the folders.

    Args:
        folder: the build folder, with everything else in place.
        plan: which boards there are, and which segments each one runs.
        video: frames may come from videos and cameras.
        archive: also write ``packages/<board>.tar``.
        add_wheels: puts into a folder what pip installs on a board.
        hashes: those of some files, known already or on their way.
    """
    packages = []
    compressing = {
        plan.ranks[end].board
        for route in plan.routes
        for channel in route.channels
        if channel.compress != "none"
        for end in (channel.source, channel.destination)
    }
    with nullcontext(hashes) if hashes else FileHashes() as known:
        for board in dict.fromkeys(rank.board for rank in plan.ranks):
            package = folder / "packages" / safe_file_name(board)
            for name in _contents(folder, plan, board):
                link_or_copy(folder / name, package / name)
            wanted = requirements([rank for rank in plan.ranks if rank.board == board])
            if video and board == plan.ranks[plan.job.source].board:
                wanted += VIDEO_REQUIREMENTS
            if board in compressing:
                wanted += COMPRESSION_REQUIREMENTS
            _write_requirements(package, board, wanted, add_wheels)
            _write_manifest(package, board, known)
            if archive:
                _write_archive(package)
            packages.append(package)
    return tuple(packages)


def renew_packages(folder: Path, plan: Plan) -> None:
    """Bring a driver that was edited, its tables, and sub-models that it moves, into the packages.

    Those of boards that the build did not know are left to a new build.
    """
    contents = {name: (folder / name).read_bytes() for name in _COMMON_FILES}
    for board in dict.fromkeys(rank.board for rank in plan.ranks):
        package = folder / "packages" / safe_file_name(board)
        copies = {package / name: new for name, new in contents.items()}
        stale = [
            copy for copy, new in copies.items() if copy.is_file() and copy.read_bytes() != new
        ]
        if not stale:
            continue
        for old in (*stale, package / "manifest.json"):
            old.unlink()
        for name in _contents(folder, plan, board):
            if not (package / name).exists():
                link_or_copy(folder / name, package / name)
        with FileHashes() as hashes:
            _write_manifest(package, board, hashes)


def _contents(folder: Path, plan: Plan, board: str) -> Iterator[str]:
    ranks = {placement.rank for placement in plan.ranks if placement.board == board}
    yield from _COMMON_FILES
    yield from sorted(
        path.relative_to(folder).as_posix()
        for path in (folder / "runtime").rglob("*")
        if path.is_file()
    )
    yield from (
        path.relative_to(folder).as_posix()
        for route in plan.routes
        for segment in route.segments
        if segment.rank in ranks
        for path in sorted((folder / segment.file).parent.glob(f"{Path(segment.file).name}*"))
    )


def _write_requirements(
    package: Path, board: str, wanted: Sequence[str], add_wheels: AddWheels | None
) -> None:
    (package / "requirements.txt").write_text("".join(f"{name}\n" for name in wanted))
    if add_wheels is not None:
        add_wheels(board, wanted, package / "wheels")


def write_profiler_package(
    folder: Path,
    board: str,
    ranks: Sequence[Rank],
    sources: Sequence[Path],
    add_wheels: AddWheels | None = None,
) -> None:
    """Write a package that measures sub-models: the runtime, and the files of which they consist.

    ``ranks``: accelerators of the board to measure. ``sources``: the model and files beside it,
    which the package has as ``sources/0`` and so on.
    """
    _copy_runtime(folder / "runtime")
    for number, source in enumerate(sources):
        link_or_copy(source.resolve(), folder / "sources" / str(number))
    wanted = [name for name in requirements(ranks) if not name.startswith("mpi4py")]
    _write_requirements(folder, board, wanted, add_wheels)
    with FileHashes() as hashes:
        _write_manifest(folder, board, hashes)


def requirements(ranks: Sequence[Rank]) -> tuple[str, ...]:
    """Return the requirements for pip on a board with these ranks; Open MPI is not among them."""
    needs = {(rank.engine, _needs(rank)) for rank in ranks}
    needs |= {(name, ENGINES[name].requirements) for r in ranks for name in r.engines[1:]}
    # The packages with a provider run CPU ranks, too, and exclude the one without.
    special = {(engine, need) for engine, need in needs if need != ENGINES[engine].requirements}
    plain = {(engine, need) for engine, need in needs if engine not in dict(special)}
    chosen = sorted({need for _, need in special | plain})
    wanted = dict.fromkeys(name for need in chosen for name in need)
    return ("mpi4py>=4.0", "numpy>=1.26", *wanted)


def _needs(rank: Rank) -> tuple[str, ...]:
    engine, options = ENGINES[rank.engine], dict(rank.options)
    if plugin := options.get("plugin"):
        return (*engine.plugin_requirements, *(() if is_library(plugin) else (plugin,)))
    name = options.get("provider") or options.get("vendor") or ""
    provider = name.removesuffix("ExecutionProvider").lower()
    return engine.special_requirements.get(provider, engine.requirements)


def _write_manifest(package: Path, board: str, hashes: FileHashes) -> None:
    paths = [path for path in sorted(package.rglob("*")) if path.is_file()]
    digests = [hashes.begin(path) for path in paths]
    contents = {
        path.relative_to(package).as_posix(): {
            "sha256": digest.result(),
            "bytes": path.stat().st_size,
        }
        for path, digest in zip(paths, digests, strict=True)
    }
    record = {"board": board, "files": contents}
    (package / "manifest.json").write_text(json.dumps(record, indent=1) + "\n")


def _write_archive(package: Path) -> None:
    def normal(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(package.with_name(package.name + ".tar"), "w") as tar:
        for path in sorted(package.rglob("*")):
            if path.is_file():
                tar.add(path, path.relative_to(package).as_posix(), filter=normal)


def link_or_copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _copy_runtime(target: Path) -> None:
    source = Path(__file__).parent / "runtime"
    for path in sorted(source.rglob("*.py")):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
