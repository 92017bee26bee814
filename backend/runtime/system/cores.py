"""The machine's cores: which there are, of what kind, how fast, and what they have done."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from .files import ROOT, beginning_of, text_of
from .processes import status_of

CORES = "sys/devices/system/cpu"
"""Folder of the cores, below the root."""
_TICKS = os.sysconf("SC_CLK_TCK")


def listed_cores(text: str) -> list[int]:
    """Return the cores of ``0-3,6`` or ``0 1 2``."""
    cores: list[int] = []
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        cores += range(int(first), int(last or first) + 1)
    return cores


def core_numbers(root: Path = ROOT) -> list[int]:
    """Return the numbers of the machine's cores, ascending, which may have gaps."""
    folders = (root / CORES).glob("cpu[0-9]*")
    return sorted(int(each.name[3:]) for each in folders) or list(range(os.cpu_count() or 1))


def allowed_cores(root: Path = ROOT) -> list[int]:
    """Return the cores on which a program of this account may run."""
    told = status_of("self", "Cpus_allowed_list", root)
    online = listed_cores(text_of(root / CORES / "online"))
    allowed = listed_cores(told) if told else online
    return [core for core in allowed if core in online] if online else allowed


def governor_of(core: int) -> str:
    """Return what sets the frequency of a core; empty: the system does not tell."""
    return text_of(ROOT / CORES / f"cpu{core}/cpufreq/scaling_governor")


def cpuinfo(root: Path = ROOT) -> list[dict[str, str]]:
    """Return the fields of each core, and of the machine where the system tells of it there."""
    return [
        dict(re.findall(r"(?m)^([^\n:]+?)[ \t]*:[ \t]*(.*)$", block))
        for block in re.split(r"\n\s*\n", text_of(root / "proc/cpuinfo"))
    ]


def fields_of_cores(root: Path = ROOT) -> dict[int, dict[str, str]]:
    """Return what the system tells of each core, by its number."""
    blocks = cpuinfo(root)
    return {int(each["processor"]): each for each in blocks if each.get("processor", "").isdigit()}


def named_in_cpuinfo(*names: str, root: Path = ROOT) -> str:
    """Return the first value of a field with one of some names; empty: there is none."""
    fields = ((name, value) for block in cpuinfo(root) for name, value in block.items())
    return next((value.strip() for name, value in fields if name in names and value), "")


def processor_times(root: Path = ROOT) -> tuple[float, float] | None:
    """Return for how many seconds all cores were busy so far, and what a hypervisor took of them.

    ``None``: the system does not tell.
    """
    with contextlib.suppress(OSError, ValueError):
        line = beginning_of(root / "proc/stat").partition(b"\n")[0]
        user, nice, system, _, _, *interrupts, steal = map(int, line.split()[1:9])
        return (user + nice + system + sum(interrupts)) / _TICKS, steal / _TICKS
    return None
