"""What the simulator says, against the runtime under mpirun with ranks that sleep."""

import json

import pytest
from conv_networks import write_network
from real_jobs import chain_folder, let_ranks_sleep, shared_keys

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.exploring.simulate import simulate
from rankslice.session.run import prepare, run

pytestmark = pytest.mark.ci


@pytest.mark.parametrize(
    ("ranks", "slowest", "window"),
    [(2, 0, None), (2, 1, None), (4, 0, None), (4, 3, None), (4, 3, 2)],
)
def test_a_simulated_job_has_about_the_rate_and_latency_of_the_real_one(
    tmp_path, ranks, slowest, window
):
    """One rank is slower than the others: it alone says whether frames wait before others."""
    folder = let_ranks_sleep(
        chain_folder(tmp_path, ranks), 20, options={slowest: {"sleep_ms": "30"}}
    )
    real = run(prepare(folder, RunOptions(frames=80, window=window))).summary
    told = simulate(folder, options=RunOptions(frames=80, window=window)).simulation
    assert 0.6 < told.throughput_fps / real.throughput_fps < 1.3
    assert 0.6 < told.latency_ms["p50"] / real.latency_ms["p50"] < 1.3


def test_a_simulated_job_keeps_a_rate_as_the_real_one_does(tmp_path):
    folder = let_ranks_sleep(chain_folder(tmp_path, 3), 10)
    real = run(prepare(folder, RunOptions(frames=60, fps=20))).summary
    told = simulate(folder, options=RunOptions(frames=60, fps=20)).simulation
    assert told.throughput_fps == pytest.approx(20)
    assert real.throughput_fps == pytest.approx(20, rel=0.1)
    assert 0.4 < told.latency_ms["p50"] / real.latency_ms["p50"] < 1.3


@pytest.fixture(scope="module")
def split_folder(tmp_path_factory):
    """Two ranks with a part of two blocks each, and the first with the other layers.

    For each frame the first sleeps four times 10 ms; the second, which limits the rate, twice 25.
    """
    folder = tmp_path_factory.mktemp("split")
    model = write_network(folder / "network.onnx", size=16, hidden=64)
    parts = [{"layers": [layers], "by": "rows"} for layers in ("c1..p2", "c3..p3")]
    first, second = shared_keys(2)
    (folder / "mapping.json").write_text(
        json.dumps({first: [*parts, "flat..scores"], second: parts})
    )
    options = BuildOptions(share_cores=True)
    built = build(model, folder / "mapping.json", "local", folder / "out", options)
    return let_ranks_sleep(built.folder, 10, options={1: {"sleep_ms": "25"}})


@pytest.mark.parametrize("window", [None, 1])
def test_a_simulated_job_with_split_layers_is_about_as_fast_as_the_real_one(split_folder, window):
    options = RunOptions(frames=60, window=window)
    real = run(prepare(split_folder, options)).summary
    told = simulate(split_folder, options=options).simulation
    assert 0.6 < told.throughput_fps / real.throughput_fps < 1.3
    assert 0.6 < told.latency_ms["p50"] / real.latency_ms["p50"] < 1.3
