"""An exploration that nobody had to run: two boards with CPU and GPU each."""

from __future__ import annotations

from rankslice.exploration.results.answer import answer
from rankslice.exploration.results.candidates import (
    Candidate,
    Exploration,
    Failure,
    Figures,
    RankLoad,
    RankTraffic,
)


def load(key: str, layers: int, compute_ms: float, measured_ms: float | None = None) -> RankLoad:
    measured_s = None if measured_ms is None else measured_ms / 1e3
    figures = layers, compute_ms / 1e3, 0.0, 0.0, "profile.json", None
    return RankLoad(
        key, key.rpartition("_")[0], *figures, layers=("conv1..fc",), measured_s=measured_s
    )


def figures(
    fps: float,
    memory_mb: float | None = 100,
    energy_j: float | None = None,
    source: str = "predicted",
) -> Figures:
    memory = None if memory_mb is None else round(memory_mb * 1e6)
    kind = None if energy_j is None else "modelled"
    return Figures(source, fps, 2 / fps, memory, energy_j, kind)


def candidate(
    number: int, fps: float, *keys: str, on_front: bool = True, **others: float | None
) -> Candidate:
    ranks = tuple(load(key, 10, 900 / fps) for key in keys)
    return Candidate(
        number,
        ranks,
        (),
        (figures(fps, **others),),  # type: ignore[arg-type]
        f"{keys[0]} computes {1e3 / fps:.3g} ms per frame",
        on_front,
    )


CPU, GPU = "edge01_cpu0-3", "edge01_gpu"
CPU_2, GPU_2 = "edge02_cpu0-3", "edge02_gpu"


def candidates() -> tuple[Candidate, ...]:
    return (
        candidate(1, 52.0, GPU, GPU_2, CPU_2, memory_mb=180, energy_j=0.42),
        candidate(2, 43.5, GPU, GPU_2, memory_mb=150, energy_j=0.4),
        candidate(3, 31.0, CPU, GPU, memory_mb=260, energy_j=0.61, on_front=False),
        candidate(4, 12.0, CPU, CPU_2, memory_mb=70, energy_j=0.9),
    )


def measured(found: Candidate) -> Candidate:
    """The same mapping after a real run."""
    return Candidate(
        found.number,
        (load(GPU, 9, 20.0, 21.5), load(GPU_2, 11, 22.0, 22.4)),
        (RankTraffic(GPU, GPU_2, 1_540_000, 0.0125),),
        (*found.figures, figures(41.25, 155, 0.41, "measured")),
        "edge02_gpu computes 22 ms per frame",
        found.on_front,
    )


def exploration(
    found: tuple[Candidate, ...] | None = None,
    target_fps: float | None = 40.0,
    model: str = "net.onnx",
    failures: tuple[Failure, ...] = (),
) -> Exploration:
    found = candidates() if found is None else found
    tried = sum(len(candidate.figures) > 1 for candidate in found)
    return Exploration(
        model=model,
        platform="boards.yaml",
        profile="profile.json",
        method="NSGA-II, 400 generations of 100, seed 0",
        objectives=("throughput", "energy", "memory"),
        left_out=(),
        evaluations=40_000,
        candidates=found,
        answer=answer(found, target_fps),
        target_fps=target_fps,
        tried_by="run" if tried or failures else None,
        tried=tried + len(failures),
        failures=failures,
    )
