"""Root file systems for boards of another architecture: a small Debian for aarch64."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from boards import needs
from boards.emulation import enabled, why_no_emulation
from boards.system import ENVIRONMENT, SYSTEM_PATH, BoardsError

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("openssh-server", "python3", "python3-venv", "rsync")
"""What a board has that came out of its box: what docs/several-boards.md asks for."""

TIMEOUT_S = 1800
COMPLETE = "etc/debian_version"


def usual_root() -> Path:
    """Return where the root for aarch64 is kept unless somebody says otherwise."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = cache if cache.is_absolute() else Path.home() / ".cache"
    return folder / "virtual-boards" / f"{SUITE}-arm64"


def is_ready(root: Path) -> bool:
    """Tell whether a root is there; it appears complete or not at all."""
    return (root / COMPLETE).is_file()


def why_no_root(root: Path) -> str:
    """Return why there can be no board with a root for aarch64 here, empty if there can."""
    reason = needs.why_not() or why_no_emulation()
    if reason or is_ready(root):
        return reason
    if shutil.which("debootstrap", path=SYSTEM_PATH) is None:
        return "a root for boards of aarch64 needs a Debian package: apt-get install debootstrap"
    return ""


def make_root(root: Path, mirror: str = MIRROR) -> None:
    """Make a root for aarch64, unless it is there: Debian 12 with sshd, rsync and Python 3.11.

    It takes some minutes and 220 MB.

    Raises:
        BoardsError: it cannot be made, and why.
    """
    reason = why_no_root(root)
    if reason:
        raise BoardsError(reason)
    if is_ready(root):
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    draft = root.with_name(f"{root.name}.{os.getpid()}")
    try:
        with enabled(f"rsb-root-{os.getpid()}"):
            debootstrap(draft, mirror)
        shutil.rmtree(draft / "var" / "cache" / "apt", ignore_errors=True)
        shutil.rmtree(draft / "var" / "lib" / "apt" / "lists", ignore_errors=True)
        draft.rename(root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def debootstrap(folder: Path, mirror: str) -> None:
    """Fill a folder with Debian.

    Raises:
        BoardsError: debootstrap failed; with its last lines.
    """
    what = ["--arch=arm64", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    # In a mount namespace of its own, so that nothing that it mounts outlives it.
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*spaces, "debootstrap", *what, SUITE, str(folder), mirror],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**ENVIRONMENT, **proxies()},
    )
    if done.returncode:
        lines = " / ".join(done.stdout.strip().splitlines()[-3:])
        raise BoardsError(f"debootstrap ended with {done.returncode}: {lines}")


def proxies() -> dict[str, str]:
    """Return the variables that say how this machine reaches the web."""
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
