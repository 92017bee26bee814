"""Platform files: YAML, AutoDiCE's text, or this machine, to the record."""

from __future__ import annotations

import os
import platform as machine
from pathlib import Path
from typing import TypeAlias

from rankslice.framework.platform import Board, Platform
from rankslice.framework.reading.read_text import read_text
from rankslice.framework.specs.platform_text import parse_platform_text

_MAX_BYTES = 1 << 18
"""Largest platform file: a thousand boards have less, and reading YAML is slow."""

PlatformSource: TypeAlias = str | Path | Platform
"""A file, the word ``local``, or a platform that was read already."""


def read_platform(name: PlatformSource) -> Platform:
    """Return the platform that a file describes.

    Args:
        name: A YAML file, a ``.txt`` file in AutoDiCE's form, or the word ``local`` for this
            machine; a platform is returned as it is.
    """
    if isinstance(name, Platform):
        return name
    if str(name) == "local":
        return local_platform()
    path = Path(name)
    text = read_text(path, "a platform", _MAX_BYTES)
    if path.suffix.lower() == ".txt":
        return parse_platform_text(text, path.name)
    from rankslice.framework.specs.platform_yaml import parse_platform_yaml  # takes its time

    return parse_platform_yaml(text, path.name)


def local_platform() -> Platform:
    """Return this machine as the board ``local``, with the cores this process may use."""
    bytes_of_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    board = Board(
        name="local",
        host="localhost",
        arch=machine.machine(),
        python=".".join(machine.python_version_tuple()[:2]),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_mb=round(bytes_of_memory / 2**20),
    )
    return Platform("local", (board,))
