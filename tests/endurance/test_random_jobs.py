"""Random networks on random ranks under a real mpirun, whose steps take randomly long."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jobs import build_folder, unsliced_outputs
from real_jobs import debians_mpirun, replace_file, wheels_mpirun
from strategies import Network, assignments, networks

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.run.run import prepare, run

pytestmark = pytest.mark.ci

FRAMES = 20

LATE_ENGINE = '''
import random
import time

_run = OnnxRuntimeEngine.run
_chance = random.Random({seed})


def _late_run(self, inputs, outputs):
    """Take randomly long."""
    time.sleep(_chance.choice((0, 0, 0, 1e-3, 2e-2)))
    _run(self, inputs, outputs)


OnnxRuntimeEngine.run = _late_run
'''


def let_steps_be_late(folder: Path, seed: int) -> None:
    code = folder / "runtime" / "engines" / "onnxruntime_engine.py"
    replace_file(code, code.read_bytes() + LATE_ENGINE.format(seed=seed).encode())


def assert_runs_right(
    network: Network, ranks: dict[str, int], window: int, latency: bool, seed: int, mpirun: Path
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), ranks)
        let_steps_be_late(folder, seed)
        options = RunOptions(frames=FRAMES, window=window, latency=latency, exact=True)
        results = run(prepare(folder, options, mpirun=mpirun)).results
        expected = unsliced_outputs(folder, ["random"], FRAMES)
        assert list(range(FRAMES)) == results.records["frame"].tolist()
        for output, values in enumerate(expected):
            np.testing.assert_array_equal(values, results.values(output))


@pytest.mark.parametrize("find", [wheels_mpirun, debians_mpirun])
@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_whatever_takes_how_long_under_mpirun_every_frame_comes_out_right(
    examples: int, find: Callable[[], Path]
) -> None:
    mpirun = find()

    # A job takes seconds, so what fails is shown as it was drawn.
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate])
    @given(data=st.data(), network=networks(max_layers=10), seed=st.integers(0, 2**32))
    def check(data: st.DataObject, network: Network, seed: int) -> None:
        ranks = data.draw(assignments(network.graph(), max_ranks=5))
        window = random.Random(seed).choice([1, 2, 3, 8])
        latency = bool(seed % 2)
        assert_runs_right(network, ranks, window, latency, seed, mpirun)

    check()
