"""Counts the calls of functions in the ranks of a real job, per frame."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from real_jobs import replace_file

_STEPS_A_FRAME = 2
"""Of a rank that has one segment, and the source or the sink."""

_COUNTING = """

import collections, json, os, sys, threading

_counted, _before = collections.Counter(), collections.Counter()


def _count(frame, event, argument):
    if event == "call":
        code = frame.f_code
        name = f"{os.path.basename(code.co_filename)}:{code.co_name}"
        _counted["python", name] += 1
        if name == "executor.py:_step" and _counted["python", name] == 400:
            _before.update(_counted)
    elif event == "c_call":
        _counted["c", f"{argument.__qualname__} in {frame.f_code.co_name}"] += 1


_measure = _Rank._measurements


def _measurements(rank, *times):
    sys.setprofile(None)
    rows = [[*key, _counted[key] - _before[key]] for key in list(_counted)]
    with open(f"{os.environ['RANKSLICE_CALLS']}{rank._setup.spec.rank}", "w") as file:
        json.dump(rows, file)
    return _measure(rank, *times)


_Rank._measurements = _measurements
threading.setprofile(_count)
sys.setprofile(_count)
"""
"""Added to a rank's program. What it counts begins with frame 200, as the first frames prepare what
the others use, and ends with the stream."""


def count_calls(folder: Path) -> None:
    """Change a build folder so that its ranks count calls, of all threads.

    They write them to the path that ``RANKSLICE_CALLS`` begins, which the rank's number ends.
    """
    code = folder / "runtime" / "pipeline" / "rank.py"
    replace_file(code, code.read_bytes() + _COUNTING.encode())


def calls_per_frame(place: str, rank: int) -> Counter[tuple[str, str]]:
    """Return how often a rank called each function per frame, by kind (``python``, ``c``), name."""
    rows = json.loads(Path(f"{place}{rank}").read_text())
    calls = Counter({(kind, name): count for kind, name, count in rows})
    frames = calls["python", "executor.py:_step"] / _STEPS_A_FRAME
    return Counter({key: count / frames for key, count in calls.items()})  # type: ignore[misc]
