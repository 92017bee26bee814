"""What the files of the system say of the machine: model, memory, cores, devices and sensors."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

from ..protocol import Answer
from .accelerators import ICDS, devices, libraries
from .cores import allowed_cores, clusters
from .files import found, shown, text_of
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
