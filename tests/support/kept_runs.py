"""Runs that nobody had to run, as build folders keep them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from plans import FIGURE_2, FIGURE_2_RANKS, planned

from rankslice.backend.runtime.figures.rank_figures import EnergyFigures, RankFigures
from rankslice.backend.runtime.system.modes import BoardMode, ClockMode
from rankslice.framework.plan import Plan
from rankslice.measurement.board_history import HardwareSummary
from rankslice.measurement.summary import RunRecord, RunSummary
from rankslice.views.side_by_side import KeptRun

TIMES = {"mean": 2.0, "p50": 2.0, "p90": 4.0, "p99": 9.0, "max": 10.0}
COUNTS = tuple(
    (1.01**place, 1.01 ** (place + 1), count)
    for place, count in ((60, 500), (70, 300), (140, 190), (220, 10))
)
CONDITIONS = {"frames from": "random, seed 0", "number of frames": "1000", "arrival": "30 frames/s"}


def rank_run(number: int, key: str, compute_ms: float = 2.0, **others: Any) -> RankFigures:
    rank = RankFigures(
        rank=number,
        key=key,
        host="edge01",
        processor="Cortex-A78",
        cores=(0, 1, 2, 3),
        engine="onnxruntime",
        frames=1000,
        compute_ms={**TIMES, "mean": compute_ms},
        compute_counts=COUNTS,
        wait_ms=3.0,
        send_ms=0.1,
        cpu_ms=2.5,
        wall_s=10.0,
        memory_mb=80.0,
    )
    return replace(rank, **others)


def run_record(*ranks: RankFigures, **others: Any) -> RunRecord:
    summary = RunSummary(
        frames=1000,
        completed=1000,
        dropped=(),
        window=4,
        throughput_fps=100.0,
        throughput_of="steady state",
        latency_ms=TIMES,
        latency_counts=COUNTS,
        preprocess_ms=TIMES,
        postprocess_ms=TIMES,
        bottleneck="rank 0 (edge01_cpu0) computes 2 ms of the 10 ms per frame",
        energy=(
            EnergyFigures(
                "edge01",
                "measured",
                "ina3221 VDD_IN",
                12.0,
                3.0,
                4.0,
                12.0,
                rails={"VDD_SOC": 3.0},
            ),
        ),
        hardware=(
            HardwareSummary(
                "edge01",
                9,
                {"temperature_c.cpu": {"min": 40.0, "mean": 50.0, "max": 60.0}},
                ("power",),
            ),
        ),
        modes={"edge01": BoardMode("15W", 2, (ClockMode("policy0", "schedutil", 300.0, 1958.4),))},
        ranks=ranks or (rank_run(0, "edge01_cpu0"), rank_run(1, "edge01_cpu1", 3.0)),
    )
    names = {field.name for field in fields(RunSummary)} - {"verify"}
    figures = {name: value for name, value in others.items() if name in names}
    record = RunRecord(
        ended="2026-11-25 03:10:57 UTC",
        model="net.onnx",
        model_sha256="0" * 64,
        job_sha256="1" * 64,
        report_sha256="2" * 64,
        command=("rankslice", "run", "out", "--fps", "30"),
        versions=(("rankslice", "0.1.0"), ("onnxruntime", "1.32.0")),
        conditions=tuple(CONDITIONS.items()),
        summary=replace(summary, **figures),
        verify="",
        notes=("warm-up before frame 0: rank 0 1.00 ms",),
    )
    return replace(record, **{name: others[name] for name in others if name not in names})


def plan(**ranks: int) -> Plan:
    """Return the plan of AutoDiCE's example, with some layers on other ranks."""
    return planned(FIGURE_2, {**FIGURE_2_RANKS, **ranks})


def kept_run(name: str = "out", of: Plan | None = None, **others: Any) -> KeptRun:
    return KeptRun(name, run_record(**others), of or plan())
