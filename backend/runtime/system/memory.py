"""The machine's memory."""

from __future__ import annotations

import re
from pathlib import Path

from .files import ROOT, text_of


def meminfo(root: Path = ROOT) -> dict[str, int]:
    """Return the amounts that the system tells of, in bytes, by its names: ``MemAvailable``."""
    found = re.findall(r"(?m)^(\w+):\s+(\d{1,15}) kB", text_of(root / "proc/meminfo"))
    return {name: int(amount) << 10 for name, amount in found}


def free_bytes(root: Path = ROOT) -> int | None:
    """Return the bytes that programs can get, of memory and of swap; ``None``: it is not told."""
    amounts = meminfo(root)
    if "MemAvailable" not in amounts:
        return None
    return amounts["MemAvailable"] + amounts.get("SwapFree", 0)


def kills_for_memory() -> int:
    """Return how many processes the kernel has killed since boot because memory ran out."""
    match = re.search(r"(?m)^oom_kill (\d+)", text_of(ROOT / "proc/vmstat"))
    return int(match.group(1)) if match else 0
