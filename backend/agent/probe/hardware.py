"""What the files of the system say of the machine: model, memory, and groups of equal cores."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from ..protocol import Answer
from .accelerators import ICDS, devices, libraries
from .files import found, number_in, shown, text_of
from .sensors import power_sensors, thermal_zones


def hardware(root: Path) -> Answer:
    """Return what the files below a root say of the machine."""
    model, source = board_model(root)
    memory = memory_mb(root)
    return {
        "model": model,
        "model_source": source,
        "system": system_name(root),
        "cores": allowed_cores(root),
        "clusters": clusters(root),
        "memory_mb": memory.get("MemTotal", 0),
        "available_mb": memory.get("MemAvailable", 0),
        "devices": devices(root),
        "libraries": libraries(root),
        "drivers": [shown(path, root) for pattern in ICDS for path in found(root, pattern)],
        "zones": thermal_zones(root),
        "sensors": power_sensors(root),
    }


def architecture() -> str:
    """Return the architecture for which packages are installed."""
    machine = platform.machine()
    is_short = machine == "aarch64" and sys.maxsize < 1 << 32  # a 32-bit system on such a kernel
    return "armv7l" if is_short else machine


def board_model(root: Path) -> tuple[str, str]:
    """Return the board's model and the file that names it; both empty if none does."""
    for name in ("proc/device-tree/model", "sys/firmware/devicetree/base/model"):
        model = text_of(root / name)
        if model:
            return model, "/" + name
    parts = [text_of(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    if any(parts):
        return " ".join(part for part in parts if part), "/sys/class/dmi/id"
    match = re.search(r"(?m)^(?:Model|Hardware)\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"))
    return (match.group(1).strip(), "/proc/cpuinfo") if match else ("", "")


def system_name(root: Path) -> str:
    """Return what the operating system calls itself."""
    match = re.search(r'(?m)^PRETTY_NAME="?([^"\n]*)', text_of(root / "etc/os-release"))
    return match.group(1) if match else ""


def memory_mb(root: Path) -> dict[str, int]:
    """Return the values of /proc/meminfo in MiB."""
    lines = re.findall(r"(?m)^(\w+):\s+(\d+) kB", text_of(root / "proc/meminfo"))
    return {name: round(int(size) / 1024) for name, size in lines}


def free_mb(folder: Path) -> int:
    """Return how many MiB an account without privileges can still write in a folder."""
    disk = os.statvfs(str(folder))
    return disk.f_bavail * disk.f_frsize >> 20


ARM_CORES = {
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd07": "Cortex-A57",
    "0xd08": "Cortex-A72",
    "0xd09": "Cortex-A73",
    "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd0d": "Cortex-A77",
    "0xd40": "Neoverse-V1",
    "0xd41": "Cortex-A78",
    "0xd42": "Cortex-A78AE",
    "0xd44": "Cortex-X1",
    "0xd46": "Cortex-A510",
    "0xd47": "Cortex-A710",
    "0xd48": "Cortex-X2",
    "0xd49": "Neoverse-N2",
    "0xd4b": "Cortex-A78C",
}
"""``CPU part`` of Arm's own cores, as /proc/cpuinfo has it -> their name."""


def core_numbers(text: str) -> list[int]:
    """Return the cores of ``0-3,6`` or ``0 1 2``."""
    cores: list[int] = []
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        cores += range(int(first), int(last or first) + 1)
    return cores


def allowed_cores(root: Path) -> list[int]:
    """Return the cores on which a program of this account may run."""
    match = re.search(r"Cpus_allowed_list:\s*(\S+)", text_of(root / "proc/self/status"))
    online = core_numbers(text_of(root / "sys/devices/system/cpu/online"))
    allowed = core_numbers(match.group(1)) if match else online
    return [core for core in allowed if core in online] if online else allowed


def clusters(root: Path) -> list[Answer]:
    """Return the cores in groups of one kind, speed and capacity."""
    groups: dict[tuple[Any, ...], Answer] = {}
    kinds = core_kinds(root)
    speeds = policy_speeds(root)
    for core in allowed_cores(root):
        least, most, source = speeds.get(core, (None, None, ""))
        capacity = number_in(root / "sys/devices/system/cpu" / f"cpu{core}" / "cpu_capacity")
        like = (kinds.get(core, ""), least, most, capacity)
        names = ("kind", "least_mhz", "most_mhz", "capacity")
        group = groups.setdefault(like, {"cores": [], **dict(zip(names, like)), "source": source})
        group["cores"].append(core)
    return sorted(groups.values(), key=lambda group: int(group["cores"][0]))


def policy_speeds(root: Path) -> dict[int, tuple[int | None, int | None, str]]:
    """Return lowest and highest MHz of each core, and the file that tells."""
    speeds: dict[int, tuple[int | None, int | None, str]] = {}
    for policy in found(root, "sys/devices/system/cpu/cpufreq/policy*"):
        least, most = (number_in(policy / f"cpuinfo_{end}_freq") for end in ("min", "max"))
        cores = text_of(policy / "related_cpus") or text_of(policy / "affected_cpus")
        for core in core_numbers(cores):
            name = shown(policy, root)
            speeds[core] = (least and round(least / 1e3), most and round(most / 1e3), name)
    return speeds


def core_kinds(root: Path) -> dict[int, str]:
    """Return what kind of core each one is, by what /proc/cpuinfo says."""
    kinds: dict[int, str] = {}
    for block in re.split(r"\n\s*\n", text_of(root / "proc/cpuinfo")):
        fields = dict(re.findall(r"(?m)^([^\n:]+?)[ \t]*:[ \t]*(.*)$", block))
        if fields.get("processor", "").isdigit():
            kinds[int(fields["processor"])] = core_kind(fields)
    return kinds


def core_kind(fields: dict[str, str]) -> str:
    """Return the kind of a core from its fields in /proc/cpuinfo."""
    part = fields.get("CPU part", "")
    if not part:
        return fields.get("model name", "")
    maker = fields.get("CPU implementer", "")
    if maker == "0x41" and part in ARM_CORES:
        return ARM_CORES[part]
    return f"implementer {maker}, part {part}"
