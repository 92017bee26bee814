"""The machine's cores: which there are, of what kind, how fast, and what they have done."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from .files import ROOT, beginning_of, number_in, paths_below, text_of

CORES = "sys/devices/system/cpu"
"""Folder of the cores, below the root."""
_MODEL = ("model name", "CPU implementer", "CPU part")
_SPEED = ("cpu_capacity", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq")
_TICKS = os.sysconf("SC_CLK_TCK")


def core_numbers(root: Path = ROOT) -> list[int]:
    """Numbers of the machine's cores, ascending; they may have gaps."""
    folders = (root / CORES).glob("cpu[0-9]*")
    return sorted(int(folder.name[3:]) for folder in folders) or list(range(os.cpu_count() or 1))


def governor_of(core: int) -> str:
    """Name of what sets the frequency of a core; empty: the system does not tell."""
    return text_of(ROOT / CORES / f"cpu{core}/cpufreq/scaling_governor")


def clock_of(core: int) -> tuple[str | None, int | None]:
    """Name of what sets the frequency of a core, and the highest one in kHz under it."""
    most = number_in(ROOT / CORES / f"cpu{core}/cpufreq/scaling_max_freq")
    return governor_of(core) or None, most


def core_kinds(cores: int, root: Path = ROOT) -> list[str]:
    """Describe each core's kind and speed: equal texts, equal cores.

    ``cores``: the highest number of one, plus 1.
    """
    by_core = fields_of_cores(root)
    kinds = []
    for number in range(cores):
        fields, folder = by_core.get(number, {}), root / CORES / f"cpu{number}"
        models = (fields[name] for name in _MODEL if name in fields)
        kinds.append(", ".join((*models, *(text_of(folder / name) for name in _SPEED))))
    return kinds


def processor() -> str:
    """Name of the board, or else of its processor; empty if it does not tell."""
    return text_of(ROOT / "proc/device-tree/model") or named_in_cpuinfo("model name")


def cpuinfo(root: Path = ROOT) -> list[dict[str, str]]:
    """Fields of each core, and of the machine where the system tells of it there."""
    return [
        dict(re.findall(r"(?m)^([^\n:]+?)[ \t]*:[ \t]*(.*)$", block))
        for block in re.split(r"\n\s*\n", text_of(root / "proc/cpuinfo"))
    ]


def fields_of_cores(root: Path = ROOT) -> dict[int, dict[str, str]]:
    blocks = [block for block in cpuinfo(root) if block.get("processor", "").isdigit()]
    return {int(block["processor"]): block for block in blocks}


def named_in_cpuinfo(*names: str, root: Path = ROOT) -> str:
    """First value of a field with one of some names; empty: there is none."""
    fields = ((name, value) for block in cpuinfo(root) for name, value in block.items())
    return next((value.strip() for name, value in fields if name in names and value), "")


def throttle_counters(kind: str, root: Path = ROOT) -> list[Path]:
    """Return the files that count how often each ``core``, or each ``package``, was throttled."""
    folders = paths_below(root, f"{CORES}/cpu[0-9]*/thermal_throttle")
    if kind == "package":  # all cores of a package show its counter
        by_package = {
            text_of(folder.parent / "topology/physical_package_id"): folder for folder in folders
        }
        folders = [*by_package.values()]
    return [folder / f"{kind}_throttle_count" for folder in folders]


def processor_times(root: Path = ROOT) -> tuple[float, float] | None:
    """Seconds for which all cores were busy so far, and what a hypervisor took of them.

    ``None``: the system does not tell.
    """
    with contextlib.suppress(OSError, ValueError):
        line = beginning_of(root / "proc/stat").partition(b"\n")[0]
        user, nice, system, _, _, *interrupts, steal = map(int, line.split()[1:9])
        return (user + nice + system + sum(interrupts)) / _TICKS, steal / _TICKS
    return None
