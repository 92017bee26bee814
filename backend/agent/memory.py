"""How much memory programs can still get."""

from __future__ import annotations

import re
from pathlib import Path


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that programs can get, of memory and of swap; ``None``: it is not told.

    Args:
        root: below which ``proc/meminfo`` lies.
    """
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    amounts = dict(re.findall(r"(?m)^(MemAvailable|SwapFree):\s+(\d{1,15}) kB", text))
    if "MemAvailable" not in amounts:
        return None
    return sum(int(amount) for amount in amounts.values()) << 10
