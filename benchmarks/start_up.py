"""How long the cheapest commands take, beside Python that does nothing.

The commands take turns. Beside wall-clock time stands processor time, which other programs on the
machine change less.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from timing import console, machine, print_table, ratios, spread

MODEL = Path(__file__).parents[1] / "models" / "digits.onnx"
PROGRAM = "from rankslice.commands import main; main()"
BARE = "python -c pass"
COMMANDS = {
    BARE: ["pass"],
    "rankslice --help": [PROGRAM, "--help"],
    "rankslice --version": [PROGRAM, "--version"],
    "rankslice run --help": [PROGRAM, "run", "--help"],
    f"rankslice inspect {MODEL.name}": [PROGRAM, "inspect", str(MODEL)],
}


def start(arguments: list[str]) -> tuple[float, float]:
    """Return the seconds that a command takes: by the clock, and of the processor."""
    before, begin = _processor_s(), time.perf_counter()
    subprocess.run([sys.executable, "-c", *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin, _processor_s() - before


def _processor_s() -> float:
    """Return the processor time of all programs that have ended here, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    console.print(f"{machine()}\n{rounds} rounds")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            found[name].append(start(arguments))
    bare = [processor for _, processor in found[BARE]]
    rows = [
        (
            name,
            spread(wall for wall, _ in times).text(),
            spread(processor for _, processor in times).text(),
            ratios([processor for _, processor in times], bare).text(0),
        )
        for name, times in found.items()
    ]
    columns = ("command", "seconds", "of the processor", "times bare Python")
    print_table("medians, with the least and the greatest", columns, rows)


if __name__ == "__main__":
    main()
