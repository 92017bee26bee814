"""What the files of the system say of the machine: model, memory, and groups of equal cores."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...runtime.system.cores import CORES, fields_of_cores, named_in_cpuinfo
from ...runtime.system.files import number_in, paths_below, text_of
from ...runtime.system.processes import meminfo, status_of
from ...runtime.system.sensors import Channel, ThermalZone, channels, thermal_zones
from ..protocol import Answer
from ..system import shown
from .device_files import ICDS, devices, libraries


def hardware(root: Path, searched: dict[str, list[str]]) -> Answer:
    """Return the description of a machine; ``searched``: patterns of ``devices``, ``libraries``."""
    model, source = board_model(root)
    memory = {name: round(amount / 2**20) for name, amount in meminfo(root).items()}
    return {
        "model": model,
        "model_source": source,
        "system": system_name(root),
        "cores": allowed_cores(root),
        "clusters": clusters(root),
        "memory_mb": memory.get("MemTotal", 0),
        "available_mb": memory.get("MemAvailable", 0),
        "devices": devices(root, searched["devices"]),
        "libraries": libraries(root, searched["libraries"]),
        "drivers": [shown(path, root) for pattern in ICDS for path in paths_below(root, pattern)],
        "zones": [zone_answer(zone, root) for zone in thermal_zones(root)],
        "sensors": [sensor(channel, root) for channel in channels(root)] or [*tegrastats(root)],
    }


def architecture() -> str:
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
    model = named_in_cpuinfo("Model", "Hardware", root=root)
    return (model, "/proc/cpuinfo") if model else ("", "")


def system_name(root: Path) -> str:
    match = re.search(r'(?m)^PRETTY_NAME="?([^"\n]*)', text_of(root / "etc/os-release"))
    return match.group(1) if match else ""


def free_mb(folder: Path) -> int:
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


def listed_cores(text: str) -> list[int]:
    """Return the cores of ``0-3,6`` or ``0 1 2``."""
    cores: list[int] = []
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        cores += range(int(first), int(last or first) + 1)
    return cores


def allowed_cores(root: Path) -> list[int]:
    affinity = status_of("self", "Cpus_allowed_list", root)
    online = listed_cores(text_of(root / CORES / "online"))
    allowed = listed_cores(affinity) if affinity else online
    return [core for core in allowed if core in online] if online else allowed


def clusters(root: Path) -> list[Answer]:
    groups: dict[tuple[Any, ...], Answer] = {}
    kinds = {core: core_kind(fields) for core, fields in fields_of_cores(root).items()}
    speeds = policy_speeds(root)
    for core in allowed_cores(root):
        least, most, source = speeds.get(core, (None, None, ""))
        capacity = number_in(root / CORES / f"cpu{core}/cpu_capacity")
        like = (kinds.get(core, ""), least, most, capacity)
        names = ("kind", "least_mhz", "most_mhz", "capacity")
        group = groups.setdefault(like, {"cores": [], **dict(zip(names, like)), "source": source})
        group["cores"].append(core)
    return sorted(groups.values(), key=lambda group: int(group["cores"][0]))


def policy_speeds(root: Path) -> dict[int, tuple[int | None, int | None, str]]:
    """Return lowest and highest MHz of each core, and the file that tells."""
    speeds: dict[int, tuple[int | None, int | None, str]] = {}
    for policy in paths_below(root, f"{CORES}/cpufreq/policy*"):
        least, most = (number_in(policy / f"cpuinfo_{end}_freq") for end in ("min", "max"))
        cores = text_of(policy / "related_cpus") or text_of(policy / "affected_cpus")
        for core in listed_cores(cores):
            name = shown(policy, root)
            speeds[core] = (least and round(least / 1e3), most and round(most / 1e3), name)
    return speeds


def core_kind(fields: dict[str, str]) -> str:
    part = fields.get("CPU part", "")
    if not part:
        return fields.get("model name", "")
    maker = fields.get("CPU implementer", "")
    if maker == "0x41" and part in ARM_CORES:
        return ARM_CORES[part]
    return f"implementer {maker}, part {part}"


def zone_answer(zone: ThermalZone, root: Path) -> Answer:
    return {
        "path": shown(zone.path, root),
        "kind": zone.kind,
        "millicelsius": number_in(zone.millicelsius_path),
    }


def tegrastats(root: Path) -> Iterator[Answer]:
    """Describe NVIDIA's program, which jobs ask for power if no file has it."""
    program = root / "usr/bin/tegrastats"
    if program.exists():
        path = shown(program, root)
        yield {"path": path, "name": program.name, "microwatts": None, "may_read": True}


def sensor(channel: Channel, root: Path) -> Answer:
    """Describe a sensor of power or energy; as a rule only root may read those of processors."""
    value, unit_w = channel.value(), channel.unit_w
    microwatts = None if value is None or unit_w is None else round(1e6 * unit_w * value)
    return {
        "path": shown(channel.paths[-1], root),
        "name": channel.name,
        "microwatts": microwatts,
        "may_read": value is not None,
    }
