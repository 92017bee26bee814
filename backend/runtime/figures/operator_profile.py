"""When each operator of a segment ran: read from the profiles of its engine, kept in a file.

onnxruntime's profile has the operators of the CPU, and of providers that compute while they are
called. Other providers only queue their operators meanwhile; the accelerator reports them by
events on its own clock (CUDA, WebGPU), or by a file with durations alone (QNN).

It needs only the standard library, as launchers load it alone.
"""

from __future__ import annotations

import csv
import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = "rankslice-operators"
VERSION = 4
NAME = "operators-"
"""Of a rank's file, before the number of the rank."""
MAX_SPANS = 200_000
"""Of operators, that a rank keeps: the last ones."""
MAX_BYTES = 64 << 20

_NODE_SUFFIX = "_kernel_time"
_RUN = "model_run"
_CPU = "CPU"
_QNN = "QNN"
_QUEUING = ("CUDA", "MIGraphX", "NvTensorRTRTX", "Tensorrt", "WebGpu")
"""Providers whose operators run after the calls that start them."""
_QNN_NUMBER = re.compile(r"[: ]OpId_\d+ \((cycles|us)\)$")
_MAX_NAME = 200

Span = tuple[int, int, int]
"""Place in the names, begin, duration."""


@dataclass(frozen=True)
class DeviceRuns:
    """When an accelerator ran the operators of a segment, as it reports itself."""

    by: str
    """The provider: ``QNN``."""
    has_clock: bool
    """Whether begins are on the accelerator's clock, since its first event; otherwise it reports
    durations alone, and each run lies in the middle of the engine's call, on the engine's clock."""
    names: tuple[str, ...]
    runs: tuple[tuple[Span, ...], ...]
    """In nanoseconds, for each run of the segment, in order."""
    slack_ns: tuple[int, ...]
    """For each run: how much longer the engine's call took; 0 with a clock."""


@dataclass(frozen=True)
class OperatorSpans:
    """Spans of one segment in microseconds, since a moment that is the engine's own."""

    names: tuple[str, ...]
    """Of operators: kind and name of the node."""
    spans: tuple[Span, ...]
    runs: tuple[tuple[int, int], ...]
    """Begin and duration of each run of the segment, in order."""
    device: DeviceRuns | None = None
    queued_by: str = ""
    """The provider that only queues its operators within their spans; empty: there is none."""
    index: int = 0
    shapes: tuple[str, ...] = ()
    """Of the inputs and outputs, by operator; empty: unknown."""
    kernels: tuple[str, ...] = ()
    """What computed the operator, by operator; empty: unknown."""
    ran_on: str = ""
    """What ran in the place of the engine, which has no profile; empty: the engine did."""


@dataclass(frozen=True)
class RankOperators:
    """What the engine of a rank told."""

    rank: int
    job_sha256: str
    segments: tuple[OperatorSpans, ...]
    """Those whose engine tells something."""


@dataclass(frozen=True)
class _Event:
    """An event of onnxruntime's profile, in microseconds."""

    name: str
    begin: int
    duration: int
    provider: str = ""
    shapes: str = ""


def read_profile(path: Path, qnn: Path | None = None) -> OperatorSpans:
    """Read a profile of onnxruntime (JSON), and QNN's own (CSV) if it is there.

    Raises:
        OSError, ValueError, TypeError, KeyError: it cannot be read.
    """
    nodes, runs, device = [], [], []
    for event in json.loads(path.read_bytes()):
        name, args = str(event.get("name")), event.get("args") or {}
        times = int(event.get("ts", 0)), int(event.get("dur", 0))
        category = event.get("cat")
        if category == "Session" and name == _RUN:
            runs.append(times)
        elif category == "Node" and name.endswith(_NODE_SUFFIX):
            kind = str(args.get("op_name", ""))
            provider = str(args.get("provider", "")).removesuffix("ExecutionProvider")
            node = f"{kind} {name.removesuffix(_NODE_SUFFIX)}".strip()
            nodes.append(_Event(node, *times, provider, _shapes(args)))
        elif category == "Kernel" or (category == "Api" and event.get("tid") == -1):
            device.append(_Event(_kernel_name(name), *times))
    queuing = next((node.provider for node in nodes if node.provider in _QUEUING), "")
    device_runs: DeviceRuns | None = None
    if device:
        device_runs = _on_own_clock(queuing or _CPU, device, len(runs))
    elif qnn is not None and qnn.exists():
        calls = [node for node in nodes if node.provider == _QNN]
        device_runs = _in_calls(calls, [*_executions(qnn)], runs)
    names: dict[tuple[str, str, str], int] = {}
    spans = [
        (names.setdefault((n.name, n.shapes, n.provider), len(names)), n.begin, n.duration)
        for n in nodes
    ]
    return OperatorSpans(
        names=tuple(name for name, _, _ in names),
        spans=tuple(spans[-MAX_SPANS:]),
        runs=tuple(runs),
        device=device_runs,
        queued_by=queuing,
        shapes=tuple(shapes for _, shapes, _ in names),
        kernels=() if device_runs else tuple(provider for _, _, provider in names),
    )


def _shapes(args: dict[str, Any]) -> str:
    sides = (args.get(f"{side}_type_shape") or [] for side in ("input", "output"))
    return shapes_text(*([shape for typed in side for shape in typed.values()] for side in sides))


def shapes_text(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> str:
    """Shapes of an operator's inputs and outputs: ``1x3x224x224, 64x3x7x7 -> 1x64x112x112``."""
    sides = (
        ", ".join("x".join(map(str, shape)) or "scalar" for shape in side)
        for side in (inputs, outputs)
    )
    return " -> ".join(sides).strip(" ->")


def _kernel_name(name: str) -> str:
    """Return the name of a kernel, which WebGPU gives as ``NODE&KIND&PROGRAM``."""
    node, *kind = name.split("&")
    return f"{kind[0]} {node}" if len(kind) == 2 else name[:_MAX_NAME]


def _on_own_clock(by: str, events: list[_Event], runs: int) -> DeviceRuns | None:
    """Return an accelerator's operators, run by run; ``None``: its runs cannot be told apart.

    They have equally many events; the first one, which is left out then, may have a few more, which
    prepare weights.
    """
    if not runs:
        return None
    events.sort(key=lambda event: event.begin)
    count = len(events) // runs
    first = len(events) - count * runs
    parts = [events[at : at + count] for at in range(first, len(events), max(count, 1))]
    names = [sorted(event.name for event in part) for part in parts]
    differs = [of_run != names[-1] for of_run in names]
    if not parts or any(differs[1:]):
        return None
    if differs[0]:
        parts[0] = []
    start = events[0].begin
    spans = [
        [
            (event.name, 1000 * (event.begin - start), 1000 * max(event.duration, 0))
            for event in part
        ]
        for part in parts
    ]
    return _device_runs(by, spans, [0] * runs, has_clock=True)


def _in_calls(
    calls: Sequence[_Event],
    executions: Sequence[list[tuple[str, float]]],
    runs: Sequence[tuple[int, int]],
) -> DeviceRuns | None:
    """Place the operators of an accelerator without a clock in the middle of the engine's calls."""
    if not calls or len(calls) != len(executions):
        return None
    spans: list[list[tuple[str, int, int]]] = [[] for _ in runs]
    slack_ns = [0] * len(runs)
    begins = [begin for begin, _ in runs]
    for call, execution in zip(calls, executions, strict=True):
        place = bisect_right(begins, call.begin) - 1
        if place < 0:
            continue
        slack = max(0, 1000 * call.duration - round(sum(duration for _, duration in execution)))
        slack_ns[place] = max(slack_ns[place], slack)
        begin_ns = 1000.0 * call.begin + slack / 2
        for name, duration in execution:
            spans[place].append((name, round(begin_ns), round(duration)))
            begin_ns += duration
    return _device_runs(_QNN, spans, slack_ns, has_clock=False)


def _device_runs(
    by: str, runs: Sequence[Sequence[tuple[str, int, int]]], slack_ns: list[int], *, has_clock: bool
) -> DeviceRuns:
    names: dict[str, int] = {}
    placed = [[(names.setdefault(n, len(names)), at, took) for n, at, took in run] for run in runs]
    kept = sum(map(len, placed))
    for run in placed:
        if kept <= MAX_SPANS:
            break
        kept -= len(run)
        run.clear()
    return DeviceRuns(by, has_clock, tuple(names), tuple(map(tuple, placed)), tuple(slack_ns))


def _executions(path: Path) -> Iterator[list[tuple[str, float]]]:
    """Yield the operators of each execution of a graph by QNN, with durations in nanoseconds.

    The NPU counts cycles. How many there were in which time it reports for the whole graph.
    """
    operators: list[tuple[str, float]] = []
    cycles, microseconds = 0, 0
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for row in csv.DictReader(file):
            kind, what = row["Message"], row["Event Identifier"]
            amount, unit = int(row["Time"]), row["Unit of Measurement"]
            if kind == "NODE":
                operators.append((_QNN_NUMBER.sub("", what), float(amount)))
            elif what.startswith("Accelerator (execute) time"):
                cycles = amount if unit == "CYCLES" else cycles
                microseconds = amount if unit == "US" else microseconds
            elif kind in ("EXECUTE", "FINALIZE"):
                if kind == "EXECUTE":
                    scale = 1000 * microseconds / cycles if cycles else 1000.0
                    yield [(name, scale * amount) for name, amount in operators if amount]
                operators, cycles, microseconds = [], 0, 0


def write_operators(folder: Path, operators: RankOperators) -> None:
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, **asdict(operators)}, separators=(",", ":")
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / f"{NAME}{operators.rank}", flags, 0o600), "w") as file:
        file.write(text)
