"""The board as Linux describes it: processor, memory, cores and what sets their clocks."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

from ..system.cores import CORES, core_numbers, fields_of_cores, governor_of, named_in_cpuinfo
from ..system.files import ROOT, number_in, text_of

_MODEL = ("model name", "CPU implementer", "CPU part")
_SPEED = ("cpu_capacity", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq")


def board_record() -> dict[str, Any]:
    """Return the description of this board for the launcher."""
    cores = core_numbers()
    return {
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "processor": processor(),
        "python": platform.python_version(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "cores": [_core(number) for number in cores],
        "core_kinds": core_kinds(cores[-1] + 1),
    }


def core_kinds(cores: int, root: Path = ROOT) -> list[str]:
    """Return what the system knows of each core's kind and speed: equal texts, equal cores.

    ``cores``: the highest number of one, plus 1.
    """
    told = fields_of_cores(root)
    found = []
    for number in range(cores):
        fields, folder = told.get(number, {}), root / CORES / f"cpu{number}"
        models = (fields[name] for name in _MODEL if name in fields)
        found.append(", ".join((*models, *(text_of(folder / name) for name in _SPEED))))
    return found


def processor() -> str:
    """Return the name of the board, or else of its processor; empty if it does not tell."""
    return text_of(ROOT / "proc/device-tree/model") or named_in_cpuinfo("model name")


def _core(number: int) -> list[Any]:
    """Return a core's number, its clock's policy, and the highest clock in kHz under it."""
    most = number_in(ROOT / CORES / f"cpu{number}/cpufreq/scaling_max_freq")
    return [number, governor_of(number) or None, most]
