"""Jobs whose bottleneck is known, run and traced: the words name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from real_jobs import CORES, chain_folder, change_plan, let_ranks_sleep

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.trace.trace import Traced, prepare_trace, trace_run
from rankslice.framework.plan import Plan

COMPUTING = """

def _compute(self, inputs, outputs):
    end = time.thread_time() + self._sleep_s
    while time.thread_time() < end:
        pass


NullEngine.run = _compute
"""
"""Takes processor time instead of sleeping."""


def traced(
    folder: Path,
    sleeps_ms: tuple[float, ...],
    engine: str = "",
    cores: Mapping[int, int] | None = None,
    **options: object,
) -> Traced:
    """Build a chain, a rank a layer, let it sleep, run and trace it."""
    out = chain_folder(folder, len(sleeps_ms))
    by_rank = {rank: {"sleep_ms": str(sleep)} for rank, sleep in enumerate(sleeps_ms)}
    let_ranks_sleep(out, 1, engine=engine, options=by_rank)
    if cores is not None:

        def moved(plan: Plan) -> Plan:
            ranks = (replace(rank, cores=(cores[rank.rank],)) for rank in plan.ranks)
            return plan.with_ranks(ranks)

        change_plan(out, moved)
    return trace_run(prepare_trace(out, RunOptions(**{"frames": 60, **options})))  # type: ignore[arg-type]


def test_a_slow_rank(tmp_path: Path) -> None:
    shown = traced(tmp_path, (4, 15, 4))
    limit = shown.findings.limit
    assert ("rank", (1,)) == (limit.kind, limit.ranks)
    assert "rank 1 (" in shown.words[0]
    assert any(line.startswith("rank 2 waits") and "rank 1's tensor 't1'" in line
               for line in shown.words)  # fmt: skip
    assert any(line.startswith("rank 0 waits") and "for room" in line for line in shown.words)


@pytest.mark.ci
def test_a_slow_rank_that_gets_messages(tmp_path: Path) -> None:
    limit = traced(tmp_path, (4, 15, 4), direct=False).findings.limit
    assert ("rank", (1,)) == (limit.kind, limit.ranks)


@pytest.mark.ci
def test_a_small_window(tmp_path: Path) -> None:
    findings = traced(tmp_path, (8, 8, 8), window=1, frames=40).findings
    assert "window" == findings.limit.kind
    assert "a larger --window" in findings.bottleneck


@pytest.mark.ci
def test_a_shared_core(tmp_path: Path) -> None:
    shared = {0: CORES[-1], 1: CORES[-1]}
    findings = traced(tmp_path, (8, 8), COMPUTING, shared).findings
    limit = findings.limit
    assert ("core", (0, 1)) == (limit.kind, limit.ranks)
    assert findings.bottleneck.startswith(f"core {CORES[-1]} of local (ranks 0 and 1) is busy for")


@pytest.mark.ci
def test_a_slow_source(tmp_path: Path) -> None:
    shown = traced(tmp_path, (4, 4, 4), fps=20, frames=40)
    assert "source" == shown.findings.limit.kind
    assert any(line.startswith("rank 0 waits") and "frames from the source" in line
               for line in shown.words)  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(("route", "kind", "ranks"), [("normal", 1, 1), ("surge", 3, 3)])
def test_two_routes(tmp_path: Path, route: str, kind: int, ranks: int) -> None:
    out = let_ranks_sleep(chain_folder(tmp_path, 3, usually_whole=True), 8)
    shown = trace_run(prepare_trace(out, RunOptions(frames=40, switch=route)))
    steps = [step for step in shown.drawn.slices if step.name.startswith("segment")]
    assert 40 * kind == len(steps)
    assert ranks == len({shown.drawn.tracks[step.track].rank for step in steps})
    assert "rank" == shown.findings.limit.kind
    assert (f"this shows frames 0 to 39, the longest series on the {route} route",) == shown.notes
