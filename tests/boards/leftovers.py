"""Removes all that a rack has, whoever made it and however that ended: found by name alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

from boards import emulation
from boards.names import RACK_NAME, RUN_FOLDER, BoardNames, RackNames
from boards.network import remove_cables
from boards.system import NAMESPACES, BoardsError, command, mounts_below, processes_in

PATIENCE_S = 20.0


def namespaces_of(rack: RackNames) -> list[str]:
    """Return the rack's network namespaces."""
    return sorted(name for name in names_in(NAMESPACES) if name.startswith(rack.prefix))


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if there is no such folder."""
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def links_of(rack: RackNames) -> list[str]:
    """Return the rack's bridge and cables as far as they are there."""
    return sorted(name for name in all_links() if name == rack.name or name.startswith(rack.prefix))


def all_links() -> list[str]:
    """Return the network links of this machine."""
    return [str(link["ifname"]) for link in json.loads(command(["ip", "-json", "link", "show"]))]


def racks_here() -> list[RackNames]:
    """Return the racks that have left anything on this machine."""
    found = [*all_links(), *names_in(NAMESPACES), *names_in(RUN_FOLDER)]
    names = {name.partition("-")[0] for name in found}
    matches = [RACK_NAME.fullmatch(name) for name in names]
    return [RackNames(number) for number in sorted(int(match[1]) for match in matches if match)]


def remove_rack(rack: RackNames) -> bool:
    """Remove all of a rack; tell whether there was anything."""
    namespaces, links = namespaces_of(rack), links_of(rack)
    cut_off(links)
    for namespace in namespaces:
        end_processes(namespace)
    remove_cables(namespaces, links)
    was_emulated = emulation.disable(rack.prefix)
    return remove_folder(rack.folder) or was_emulated or bool(namespaces or links)


def remove_board(board: BoardNames) -> None:
    """Remove a board's processes, cable and namespace at once; its disk stays."""
    cut_off([link for link in links_of(board.rack) if link == board.cable])
    present = [name for name in namespaces_of(board.rack) if name == board.namespace]
    for namespace in present:
        end_processes(namespace)
    remove_cables(present, [link for link in links_of(board.rack) if link == board.cable])


def cut_off(links: list[str]) -> None:
    """Take links down, so that nobody hears of the processes' end."""
    for link in links:
        command(["ip", "link", "set", "dev", link, "down"])


def end_processes(namespace: str) -> None:
    """Kill all processes of a board and wait for their end.

    Raises:
        BoardsError: some are still there.
    """
    deadline = time.monotonic() + PATIENCE_S
    while processes := processes_in(namespace):
        if time.monotonic() > deadline:
            raise BoardsError(f"processes of {namespace} do not end: {processes}")
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def unmount(mount: Path) -> None:
    """Unmount a disk; a process that has just ended may have it open for a moment.

    Raises:
        BoardsError: it is still in use.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            command(["umount", mount])
        except BoardsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def remove_folder(folder: Path) -> bool:
    """Remove a rack's folder with the disks that are mounted there; tell whether there was one.

    Raises:
        BoardsError: a disk is still in use.
    """
    for mount in mounts_below(folder):
        unmount(mount)
    if not folder.is_dir():
        return False
    shutil.rmtree(folder)
    return True
