"""Packages on the board: received, checked and published in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..protocol import Answer, Request
from .folders import (
    HOME,
    KEPT_PACKAGES,
    MAX_BASES,
    PACKAGE,
    RefusedError,
    age_s,
    make_folders,
    newest,
    package_of,
    write,
)
from .runs import is_watched, processes

OLD_STAGING_S = 3600


def receive(request: Request) -> Answer:
    """Tell whether the package is there and undamaged; if not, prepare a staging folder for it.

    ``bases`` are folders whose files rsync may link instead of copying.
    """
    make_folders()
    if request["over_ssh"] and not shutil.which("rsync"):
        raise RefusedError(
            "there is no rsync on the board; install it there: apt-get install rsync"
        )
    package = package_of(request)
    if not _damage(package, request):
        _publish(package, request)
        return {"state": "there", "bases": []}
    for left in (HOME / "staging").iterdir():
        if age_s(left) > OLD_STAGING_S:
            shutil.rmtree(left, ignore_errors=True)
    bases = [*newest(HOME / "packages"), *newest(HOME / "staging")]
    names = [str(base.relative_to(HOME)) for base in bases if PACKAGE.fullmatch(base.name)]
    (HOME / "staging" / request["staging"]).mkdir()
    return {"state": "wanted", "bases": names[:MAX_BASES]}


def commit(request: Request) -> Answer:
    staging, package = HOME / "staging" / request["staging"], package_of(request)
    wrong = _damage(staging, request)
    if wrong:
        shutil.rmtree(staging, ignore_errors=True)
        raise RefusedError(f"the copy is damaged: {wrong}; deploy again")
    _settle(staging)  # what is published survives a power cut
    if package.exists():
        package.rename(HOME / "staging" / f"damaged.{os.getpid()}")
    staging.rename(package)
    _publish(package, request)
    for left in (HOME / "staging").iterdir():
        if left.name.startswith((f"{package.name}.", "damaged.")):
            shutil.rmtree(left, ignore_errors=True)
    return {}


def room(request: Request) -> Answer:
    return {"free_bytes": shutil.disk_usage(HOME / request["folder"]).free}


def _settle(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _publish(package: Path, request: Request) -> None:
    """Record the state of a package's files, and remove old packages that no run uses.

    ``beside``: how many packages this one is deployed with, itself included.
    """
    _note(package, _states(package, request["files"]))
    os.utime(package)
    old = newest(HOME / "packages")[KEPT_PACKAGES - 1 + request["beside"] :]
    living = {job for job, _ in processes().values()} if old else set()
    runs = [run for run in newest(HOME / "runs") if run.name in living or is_watched(run)]
    used = {os.path.realpath(run / "package") for run in runs}
    for package_folder in old:
        if os.path.realpath(package_folder) not in used:
            shutil.rmtree(package_folder, ignore_errors=True)
            (HOME / "checked" / package_folder.name).unlink(missing_ok=True)


def _damage(folder: Path, request: Request) -> str:
    """Read all files of a package; return the first fault, empty if there is none."""
    manifest = folder / "manifest.json"
    if not manifest.is_file() or _sha256_of(manifest) != request["manifest_sha256"]:
        return "manifest.json is not that of the package"
    for name, entry in request["files"].items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != entry["bytes"] or _sha256_of(path) != entry["sha256"]:
            return f"{name} is not what the manifest says"
    return ""


def changes(package: Path, request: Request) -> str:
    """Read the files that changed since the last check; return a fault, empty: none."""
    try:
        checked = json.loads((HOME / "checked" / package.name).read_text())
    except (OSError, ValueError):
        checked = {}
    try:
        now = _states(package, request["files"])
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    changed = {name for name, state in now.items() if checked.get(name) != state}
    if not changed:
        return ""
    files = {name: entry for name, entry in request["files"].items() if name in changed}
    wrong = _damage(package, {**request, "files": files})
    if not wrong:
        _note(package, now)
    return wrong


def _note(package: Path, states: dict[str, list[int]]) -> None:
    write(HOME / "checked" / package.name, json.dumps(states))


def _states(package: Path, files: Iterable[str]) -> dict[str, list[int]]:
    """Return size, change time and inode of each file: one differs once the file is written to.

    Programs cannot set the change time (ctime).
    """
    states = {}
    for name in [*files, "manifest.json"]:
        status = (package / name).stat()
        states[name] = [status.st_size, status.st_ctime_ns, status.st_ino]
    return states


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 18):
            digest.update(block)
    return digest.hexdigest()
