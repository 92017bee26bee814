"""Random networks on random ranks under a real mpirun, whose steps take randomly long."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings, strategies as st
from jobs import Weights, build_folder, unsliced_outputs
from plans import turn_weights
from real_jobs import debians_mpirun, replace_file, wheels_mpirun
from strategies import Network, assignments, networks

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare, run
from rankslice.session.shared_options import Launching

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1800)]

FRAMES = 20
MANY = 10_000
DELAYS_S = (0.0, 0.0, 0.0, 1e-3, 2e-2)
SHORT_DELAYS_S = (0.0, 0.0, 0.0, 0.0, 1e-4, 2e-3)

LATE_ENGINE = '''
import random
import time

_run = OnnxRuntimeEngine.run
_chance = random.Random(f"{seed} {{os.environ['OMPI_COMM_WORLD_RANK']}}")


def _late_run(self, inputs, outputs):
    """Take randomly long."""
    time.sleep(_chance.choice({delays_s}))
    _run(self, inputs, outputs)


OnnxRuntimeEngine.run = _late_run
'''


@dataclass(frozen=True, slots=True)
class Drawn:
    """A job that was drawn."""

    network: Network
    entries: Mapping[str, int]
    weights: Weights
    window: int
    seed: int

    @property
    def latency(self) -> bool:
        return bool(self.seed % 2)

    @property
    def direct(self) -> bool:
        return self.seed % 3 > 0


def assert_runs_right(
    drawn: Drawn, mpirun: Path, frames: int = FRAMES, delays_s: Sequence[float] = DELAYS_S
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        model = drawn.network.model()
        folder = build_folder(Path(temporary), model, drawn.entries, weights=drawn.weights)
        code = folder / "runtime" / "engines" / "onnxruntime_engine.py"
        late = LATE_ENGINE.format(seed=drawn.seed, delays_s=tuple(delays_s))
        replace_file(code, code.read_bytes() + late.encode())
        options = RunOptions(
            frames=frames,
            window=drawn.window,
            latency=drawn.latency,
            direct=drawn.direct,
            exact=True,
        )
        results = run(prepare(folder, options, Launching(mpirun))).results
        expected = unsliced_outputs(folder, ["random"], frames)
        assert list(range(frames)) == results.records["frame"].tolist()
        for output, values in enumerate(expected):
            np.testing.assert_array_equal(values, results.values(output))


@pytest.mark.parametrize("find", [wheels_mpirun, debians_mpirun])
@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_whatever_takes_how_long_under_mpirun_every_frame_comes_out_right(
    examples: int, find: Callable[[], Path]
) -> None:
    mpirun = find()

    # A job takes seconds, so what fails is shown as it was drawn.
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate])
    @given(data=st.data(), network=networks(max_layers=10), seed=st.integers(0, 2**32))
    def check(data: st.DataObject, network: Network, seed: int) -> None:
        entries = data.draw(assignments(network.graph(), max_ranks=5))
        weights = data.draw(turn_weights(1 + max(entries.values())))
        window = random.Random(seed).choice([1, 2, 3, 8])
        assert_runs_right(Drawn(network, entries, weights, window, seed), mpirun)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("window", range(1, 7))
def test_ten_thousand_frames_over_ranks_in_turn_come_out_once_in_order_and_right(
    window: int,
) -> None:
    mpirun = wheels_mpirun()
    replicas = st.integers(max(2, -(-window // 2)), 3)
    some_layers = networks(max_layers=8).filter(lambda network: len(network.nodes) > 3)

    @settings(max_examples=3, deadline=None, phases=[Phase.generate])
    @given(data=st.data(), network=some_layers, seed=st.integers(0, 2**32))
    def check(data: st.DataObject, network: Network, seed: int) -> None:
        entries = data.draw(assignments(network.graph(), max_ranks=3))
        assume(window < 3 or len(set(entries.values())) > 1)
        count = data.draw(replicas)
        weights = st.lists(st.integers(1, 3), min_size=count, max_size=count).map(tuple)
        places = st.integers(0, max(entries.values()))
        chosen = data.draw(st.dictionaries(places, weights, min_size=1, max_size=1))
        drawn = Drawn(network, entries, chosen, window, seed)
        print(
            f"JOB window {window}; {len(network.nodes)} layers; {entries}; weights {chosen}; {seed}"
        )
        assert_runs_right(drawn, mpirun, MANY, SHORT_DELAYS_S)

    check()
