"""Count the product's lines, by room: ``python tests/product_lines.py [REVISION [REVISION]]``.

The product is every ``.py`` file outside the folders below. Without a revision it is the working
tree; with one, or two, the lines of each and the difference.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

OUTSIDE = ("tests", "benchmarks", "docs", "examples", "models", "networks", ".ci")
DEEP = ("backend", "commands", "frontend", "exploration", "measurement")
"""Rooms whose parts are counted, too."""


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], stdout=subprocess.PIPE, check=True).stdout


def lines_by_room(revision: str | None = None) -> Counter[str]:
    """Return the lines of each room and part, and of ``all``; and the ``files``."""
    listed = git("ls-tree", "-r", "--name-only", revision) if revision else git("ls-files")
    counts: Counter[str] = Counter()
    for name in listed.decode().splitlines():
        room, *inside = name.split("/")
        if not name.endswith(".py") or room in OUTSIDE:
            continue
        if revision is None and not Path(name).exists():
            continue
        text = git("show", f"{revision}:{name}") if revision else Path(name).read_bytes()
        lines = text.count(b"\n")
        counts["all"] += lines
        counts["files"] += 1
        counts[room] += lines
        if room in DEEP and len(inside) > 1:
            counts[f"{room}/{inside[0]}"] += lines
    return counts


def main() -> None:
    revisions = [*sys.argv[1:3], None, None][:2]
    old, new = (lines_by_room(revision) for revision in revisions)
    if len(sys.argv) < 2:
        old = new
    for name in sorted({*old, *new}, key=lambda name: (name in ("all", "files"), name)):
        print(f"{name:28} {old[name]:7} {new[name]:7} {new[name] - old[name]:+7}")


if __name__ == "__main__":
    main()
