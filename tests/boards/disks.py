"""A board's disk: the files of a root below, this machine's as a rule, its own on a tmpfs above."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from boards.keys import HOST_NAME, SERVER_CONFIG, Keys, client_config
from boards.names import BoardNames
from boards.system import SYSTEM_PATH, BoardsError, command

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PYENV = Path.home() / ".pyenv" / "versions"

HIDDEN = tuple(map(Path, ("/tmp", "/var/tmp", "/run", "/home", "/root", "/mnt", str(CHECKOUT))))
"""Folders of this machine that are empty on a board: what a board has of them was brought there."""

OWN_ROOT = Path("/")
"""Root of boards that have this machine's files and programs."""

MODES = {Path("/tmp"): 0o1777, Path("/var/tmp"): 0o1777, Path("/root"): 0o700}


def kept_folders() -> tuple[Path, ...]:
    """Return the folders that boards have although they lie in hidden ones: those of Pythons."""
    candidates = {Path(sys.prefix), Path(sys.base_prefix), PYENV}
    folders = sorted(folder for folder in candidates if folder.is_dir())
    return tuple(
        folder
        for folder in folders
        if not any(other in folder.parents for other in folders) and needs_keeping(folder)
    )


def needs_keeping(folder: Path) -> bool:
    """Tell whether a folder would be hidden, or lies on another file system than the root."""
    hidden = any(top == folder or top in folder.parents for top in HIDDEN)
    return hidden or folder.stat().st_dev != Path("/").stat().st_dev


def make_disk(board: BoardNames, size_mb: int) -> None:
    """Mount an empty disk for a board."""
    board.disk.mkdir()
    options = f"size={size_mb}m,mode=0755"
    command(["mount", "-t", "tmpfs", "-o", options, board.namespace, board.disk])


def resize_disk(board: BoardNames, size_bytes: int) -> None:
    """Let a disk hold this much, in bytes."""
    pages = max(1, -(-size_bytes // 4096))
    command(["mount", "-o", f"remount,size={pages * 4096}", board.disk])


def install(
    board: BoardNames, boards: Sequence[BoardNames], keys: Keys, root: Path = OWN_ROOT
) -> None:
    """Fill an empty disk: which folders are empty, host names, keys, and what a board starts."""
    for name in ("upper", "work", "root", "kept"):
        (board.disk / name).mkdir()
    upper = board.disk / "upper"
    for folder in HIDDEN if root == OWN_ROOT else ():
        hide(upper, folder)
    for name in ("boot.sh", "first_process.sh"):
        shutil.copy(HERE / name, board.disk / name)
    for path, text in files_of(board, boards, keys).items():
        write(upper, Path(path), text)
    make_folder(upper, Path("/run/sshd"))
    use_path(board, [Path(sys.prefix) / "bin"] if root == OWN_ROOT else [])


def files_of(board: BoardNames, boards: Sequence[BoardNames], keys: Keys) -> dict[str, str]:
    """Return the files in which boards differ from this machine: path -> text."""
    home = Path("/root/.ssh")
    names = {"localhost": "127.0.0.1", HOST_NAME: board.rack.host_address}
    names |= {each.name: each.address for each in boards}
    hosts = "".join(f"{address}\t{name}\n" for name, address in names.items())
    return {
        "/etc/hostname": f"{board.name}\n",
        "/etc/hosts": hosts,
        # A locked account could not log in without PAM.
        "/etc/shadow": "root:*:20000:0:99999:7:::\nsshd:*:20000:0:99999:7:::\n",
        "/etc/ssh/board_config": SERVER_CONFIG.format(address=board.address),
        "/etc/ssh/board_key": keys.boards[board.name],
        f"{home}/authorized_keys": keys.public,
        f"{home}/id_ed25519": keys.private,
        f"{home}/known_hosts": keys.known_hosts,
        f"{home}/config": client_config(boards, home / "id_ed25519", home / "known_hosts"),
    }


def use_path(board: BoardNames, folders: Sequence[Path]) -> None:
    """Let commands on a board be looked for in these folders first."""
    path = ":".join([*map(str, folders), SYSTEM_PATH])
    set_environment(board, {"PATH": path})


def environment_file(board: BoardNames) -> Path:
    """Return where sshd looks for the variables of its sessions."""
    return board.disk / "upper" / "root" / ".ssh" / "environment"


def environment(board: BoardNames) -> dict[str, str]:
    """Return the variables of a board's sessions."""
    lines = environment_file(board).read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def set_environment(board: BoardNames, variables: dict[str, str]) -> None:
    """Change variables of sessions to come."""
    path = environment_file(board)
    known = environment(board) if path.exists() else {}
    lines = [f"{name}={value}\n" for name, value in {**known, **variables}.items()]
    path.write_text("".join(lines))


def hide(upper: Path, folder: Path) -> None:
    """Let a folder be empty, whatever this machine has there."""
    if not folder.is_dir():
        return
    made = make_folder(upper, folder)
    made.chmod(MODES.get(folder, 0o755))
    os.setxattr(made, "trusted.overlay.opaque", b"y")


def make_folder(upper: Path, folder: Path) -> Path:
    """Make a folder of a board; the folders above it look as on this machine."""
    made = upper / folder.relative_to("/")
    if not made.is_dir():
        make_folder(upper, folder.parent)
        made.mkdir()
        if folder.is_dir():
            shutil.copystat(folder, made)
    return made


def write(upper: Path, path: Path, text: str) -> None:
    """Write a file of a board, readable by root alone if it is in a private place."""
    make_folder(upper, path.parent)
    target = upper / path.relative_to("/")
    target.write_text(text)
    private = path.name in {"shadow", "board_key", "id_ed25519"}
    target.chmod(0o600 if private else 0o644)


def overlay_places(board: BoardNames, root: Path = OWN_ROOT) -> list[str]:
    """Return the root and the kept folders as arguments of ``boot.sh``; make what overlays need.

    Raises:
        BoardsError: a folder has a character that has a meaning in mount options.
    """
    folders = [str(folder) for folder in kept_folders()] if root == OWN_ROOT else []
    odd = [folder for folder in [str(root), *folders] if set(folder) & set(',:\\"\n')]
    if odd:
        raise BoardsError(f"no board can have the folder {odd[0]!r}: rename it")
    for number in range(len(folders)):
        for name in ("upper", "work"):
            (board.disk / "kept" / str(number) / name).mkdir(parents=True, exist_ok=True)
    return [str(root), *folders]
