"""Figures of some random jobs, which stay as they are unless the simulator is meant to change.

``pytest tests/exploration/simulator --regenerate-golden`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_jobs import simulated_job, steps_of

GOLDEN = Path(__file__).with_name("simulated_jobs.json")
SEEDS = range(16)
SEEDS_IN_TURN = range(8)


def figures(seed: int, *, in_turn: bool = False) -> dict[str, Any]:
    """Return what ``simulate --json`` tells of a job, and the mean time of its steps."""
    simulation = simulated_job(seed, in_turn=in_turn)
    middle_s = np.mean([(step.begin_s, step.end_s) for step in steps_of(simulation)])
    return {**simulation.to_json(), "steps_mean_s": middle_s}


def test_jobs_show_what_they_showed(request: pytest.FixtureRequest) -> None:
    found = {str(seed): figures(seed) for seed in SEEDS}
    found |= {f"{seed} in turn": figures(seed, in_turn=True) for seed in SEEDS_IN_TURN}
    if request.config.getoption("--regenerate-golden"):
        lines = (f"{json.dumps(seed)}: {json.dumps(job)}" for seed, job in found.items())
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    before, now = flat(expected), flat(found)
    assert list(before) == list(now)
    for name, value in before.items():
        # Events have whole nanoseconds.
        off = 1e-9 if name.endswith("steps_mean_s") else 0.0
        same = pytest.approx(value, rel=1e-9, abs=off) if isinstance(value, float) else value
        assert now[name] == same, name


def flat(values: Any, name: str = "") -> dict[str, Any]:
    """Return the numbers and texts of nested values, by their paths."""
    if not isinstance(values, dict | list):
        return {name: values}
    items = values.items() if isinstance(values, dict) else enumerate(values)
    return {key: value for at, each in items for key, value in flat(each, f"{name}.{at}").items()}
