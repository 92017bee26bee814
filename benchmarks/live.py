"""Whether ``rankslice run --live`` changes the figures of the run.

A network over two ranks runs with the view and without it, in turn: as fast as it can, which gives
frames/s, and with frames that come at half of that rate, which gives the mean latency. Each
run has a terminal of its own, so that the view is drawn, and without it the bar.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_efficiency import model_of, shipped_mapping, store_frames
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.session.building.build import build

RATE, LATENCY = "frames/s, as fast as they are taken", "mean latency, ms, at half of it"
SIZE = {"COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
FIRST_FRAMES = 500
"""Of the two runs that tell how many frames the others have."""


def in_terminal(*arguments: str | Path) -> str:
    """Run the command line in a terminal; return what it shows."""
    ours, theirs = os.openpty()
    command = [Path(sys.executable).with_name("rankslice"), *arguments]
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, env={**os.environ, **SIZE}, **ends) as job:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal ends with the command
            while block := os.read(ours, 1 << 16):
                shown += block
        os.close(ours)
    if job.returncode:
        sys.exit(shown.decode())
    return shown.decode()


def figures(out: Path, source: Path, frames: int, *options: str) -> dict[str, Any]:
    """Run a job once; return its figures."""
    file = out.parent / "run.json"
    arguments = ("--input", source, "--frames", str(frames), "--json", file)
    shown = in_terminal("run", out, *arguments, *options)
    if bool(re.search(r"; \d+ inside", shown)) != ("--live" in options):
        sys.exit(f"the view was not drawn, or without being asked for:\n{shown}")
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="squeezenet", help="network of the zoo with a shipped mapping")
    add("--seconds", type=float, default=2.5, help="of a run")
    add("--rounds", type=int, default=8, help="runs of each")
    args = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        mapping = shipped_mapping(args.model)
        built = build(model_of(args.model), mapping, "local", Path(place, "out"))
        source = store_frames(built.plan, Path(place, "frames.npz"))
        first = [figures(built.folder, source, FIRST_FRAMES) for _ in range(2)]
        fastest = max(record["throughput_fps"] for record in first)
        arrivals = ("--fps", f"{fastest / 2:.1f}", "--queue", "10000")
        loads = {RATE: (fastest, ()), LATENCY: (fastest / 2, arrivals)}
        jobs = {
            (load, view): partial(
                figures, built.folder, source, round(args.seconds * fps), *options, *view
            )
            for load, (fps, options) in loads.items()
            for view in ((), ("--live",))
        }
        results = in_turns(args.rounds, jobs)
    rows = []
    for load in loads:
        without, live = (
            [
                record["throughput_fps"] if load == RATE else record["latency_ms"]["mean"]
                for record in results[load, view]
            ]
            for view in ((), ("--live",))
        )
        rows.append(
            (load, spread(without).text(), spread(live).text(), ratios(live, without).text(3))
        )
    columns = ("", "without", "--live", "--live / without")
    print_table(f"{args.model} over two ranks", columns, rows)


if __name__ == "__main__":
    main()
