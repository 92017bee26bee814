"""Benchmarks as records, without a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankslice.measurement.bench.bench_records import (
    Bench,
    Load,
    Machine,
    Noise,
    RankFacts,
    StageTimes,
    Start,
    Subject,
)

MACHINE = Machine("vm", "a processor", 2, "Linux 6", "", (("Python", "3.11"),), 0.0, 0.5)
QUIET = Noise("", 0.01, 0.0, 0)
MS = 1_000_000


def subject(name: str = "out", sha256: str = "a" * 64) -> Subject:
    return Subject(name, "m.onnx", sha256, "b" * 64, 3, (RankFacts("local_cpu0", "local", "null"),))


def start(
    latencies_ns: Sequence[int] | NDArray[np.int64],
    *,
    subject: int = 0,
    load: int = 0,
    turn: int = 0,
    period_ns: int = 10 * MS,
    noise: Noise = QUIET,
) -> Start:
    """Return a start whose frames come by the clock."""
    latencies = tuple(map(int, latencies_ns))
    return Start(
        subject=subject,
        load=load,
        turn=turn,
        began_s=1.7e9,
        took_s=2.0,
        arrived_ns=tuple(period_ns * frame for frame in range(len(latencies))),
        latency_ns=latencies,
        stages=(StageTimes(0, 0, 0, latencies),),
        noise=(noise,),
    )


def bench(
    starts: Sequence[Start],
    subjects: Sequence[Subject] = (subject(),),
    loads: Sequence[Load] = (Load("closed loop"),),
) -> Bench:
    frames = len(starts[0].latency_ns)
    return Bench(("random",), frames, 0, MACHINE, (), (*subjects,), (*loads,), (*starts,))


def queued(arrived_ns: Sequence[int], service_ns: Sequence[int]) -> list[int]:
    """Return the latencies of frames that are served one after the other."""
    free, latencies = 0, []
    for arrived, service in zip(arrived_ns, service_ns, strict=True):
        free = max(free, arrived) + service
        latencies.append(free - arrived)
    return latencies
