"""Lets this machine run programs for aarch64: its kernel (binfmt_misc) hands them to qemu."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from boards.system import ENVIRONMENT, SYSTEM_PATH, BoardsError, command

PLACE = Path("/proc/sys/fs/binfmt_misc")
SOURCE = "rsb"
"""What the mount of :data:`PLACE` is called if it is ours."""

MIN_QEMU = 10
"""Older ones crash in LiteRT and onnxruntime."""

QEMUS = ("qemu-aarch64-static", "qemu-aarch64")

MAGIC = r"\x7fELF\x02\x01\x01" + 9 * r"\x00" + r"\x02\x00\xb7\x00"
MASK = 7 * r"\xff" + r"\x00" + 8 * r"\xff" + r"\xfe\xff\xff\xff"
"""How files begin that are for aarch64: 64 bits, little-endian, program or library, machine 183."""

FLAGS = "POCF"
"""Keep argv[0] and the credentials; open qemu now, for boards do not have it."""


def qemu() -> Path | None:
    """Return the qemu for programs of aarch64, if it is installed."""
    found = [shutil.which(name, path=SYSTEM_PATH) for name in QEMUS]
    return next((Path(path) for path in found if path), None)


def qemu_version(path: Path) -> int:
    """Return a qemu's major version; 0 if it does not tell."""
    told = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, env=ENVIRONMENT
    ).stdout
    match = re.search(r"version (\d+)\.", told)
    return int(match[1]) if match else 0


def why_no_emulation() -> str:
    """Return why programs for aarch64 cannot run here, empty if they can."""
    if os.uname().machine == "aarch64":
        return ""
    if os.geteuid() != 0:
        return "boards of aarch64 need root: binfmt_misc is told of qemu"
    if not is_mounted() and "binfmt_misc" not in Path("/proc/filesystems").read_text().split():
        return "boards of aarch64 need the kernel's binfmt_misc: modprobe binfmt_misc"
    path = qemu()
    version = qemu_version(path) if path else 0
    if version < MIN_QEMU:
        found = f"{path} is of version {version}" if path else "there is none"
        return (
            f"boards of aarch64 need qemu-user-static {MIN_QEMU} or later, but {found}; on"
            " Debian 12: apt-get install --yes qemu-user-static/bookworm-backports"
        )
    return ""


def enable(name: str) -> None:
    """Let programs for aarch64 run, under this name of an entry; twice is no mistake.

    Raises:
        BoardsError: they cannot, and why.
    """
    reason = why_no_emulation()
    if reason:
        raise BoardsError(reason)
    if os.uname().machine == "aarch64":
        return
    if not is_mounted():
        command(["mount", "-t", "binfmt_misc", SOURCE, PLACE])
    if not (PLACE / name).exists():
        entry = f":{name}:M::{MAGIC}:{MASK}:{qemu()}:{FLAGS}"
        (PLACE / "register").write_text(entry)


def disable(prefix: str) -> bool:
    """Remove the entries whose names begin so, and our mount with the last; tell if there was any.

    Entries of others stay.
    """
    found = [path for path in PLACE.glob(f"{prefix}*") if path.name not in ("register", "status")]
    for entry in found:
        entry.write_text("-1")
    if mount_source() == SOURCE and not any(PLACE.glob("rsb*")):
        command(["umount", PLACE])
    return bool(found)


@contextlib.contextmanager
def enabled(name: str) -> Iterator[None]:
    """Let programs for aarch64 run inside.

    Raises:
        BoardsError: they cannot, and why.
    """
    enable(name)
    try:
        yield
    finally:
        disable(name)


def mount_source() -> str:
    """Return what is mounted at :data:`PLACE`; empty: nothing."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next((each[0] for each in mounts if each[1:3] == [str(PLACE), "binfmt_misc"]), "")


def is_mounted() -> bool:
    """Tell whether entries can be made and seen."""
    return bool(mount_source())
