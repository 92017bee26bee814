"""The board as Linux describes it: processor, memory, cores and what sets their clocks."""

from __future__ import annotations

import os
import platform
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

_SYSTEM = Path("/sys")
_MODEL = ("model name", "CPU implementer", "CPU part")
_SPEED = ("cpu_capacity", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq")


def board_record() -> dict[str, Any]:
    """Return the description of this board for the launcher."""
    cores = core_numbers(_SYSTEM)
    return {
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "processor": processor(),
        "python": platform.python_version(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "cores": [_core(number) for number in cores],
        "core_kinds": core_kinds(_SYSTEM, file_text(Path("/proc/cpuinfo")), cores[-1] + 1),
    }


def core_numbers(system: Path) -> list[int]:
    """Return the numbers of the board's cores, ascending, which may have gaps."""
    folders = (system / "devices/system/cpu").glob("cpu[0-9]*")
    return sorted(int(each.name[3:]) for each in folders) or list(range(os.cpu_count() or 1))


def core_kinds(system: Path, cpuinfo: str, cores: int) -> list[str]:
    """Return what the system knows of each core's kind and speed: equal texts, equal cores.

    Args:
        system: where Linux shows its devices.
        cpuinfo: the text of ``/proc/cpuinfo``.
        cores: the highest number of one, plus 1.
    """
    models: dict[int, list[str]] = {}
    for block in cpuinfo.split("\n\n"):
        fields = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in block.splitlines())
        }
        core = fields.get("processor", "")
        if core.isdigit():
            models[int(core)] = [fields[name] for name in _MODEL if name in fields]
    found = []
    for number in range(cores):
        folder = system / f"devices/system/cpu/cpu{number}"
        files = (file_text(folder / name) for name in _SPEED)
        found.append(", ".join((*models.get(number, []), *files)))
    return found


def processor() -> str:
    """Return the name of the board, or else of its processor; empty if it does not tell."""
    named = file_text(Path("/proc/device-tree/model")).strip("\0")
    if named:
        return named
    lines = file_text(Path("/proc/cpuinfo")).splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def _core(number: int) -> list[Any]:
    """Return a core's number, its clock's policy, and the highest clock in kHz under it."""
    policy = Path(f"/sys/devices/system/cpu/cpu{number}/cpufreq")
    most = file_text(policy / "scaling_max_freq")
    return [number, file_text(policy / "scaling_governor") or None, int(most) if most else None]


def file_text(path: Path) -> str:
    """Return what a file of the system says; empty if it may not be read, or is no text."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
