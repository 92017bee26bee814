"""Random networks on random ranks, some in turn, whose messages and steps take randomly long."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from in_process import compressed
from jobs import build_folder, unsliced_outputs
from plans import turn_weights
from strategies import Network, assignments, networks, pairs_of
from twin import ThreadLinks, TwinTransport

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.rank import run_rank
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.backend.runtime.transport import Completion
from rankslice.framework.reading.read_driver import read_driver

pytestmark = pytest.mark.ci

FRAMES = 12
PATIENCE_S = 120
DELAYS_S = (0.0, 0.0, 0.0, 1e-4, 1e-3, 4e-3)


class LateTransport(TwinTransport):
    """Reports the ends of transfers late, and in any order, as MPI may."""

    def __init__(self, network: ThreadLinks, rank: int, seed: int) -> None:
        super().__init__(network, rank)
        self._random = random.Random(seed)
        self._late: tuple[list[Completion], list[Completion]] = ([], [])

    def poll(self) -> tuple[list[Completion], list[Completion]]:
        time.sleep(self._random.choice(DELAYS_S))
        for late, new in zip(self._late, super().poll(), strict=True):
            late.extend(new)
        return self._some(self._late[0]), self._some(self._late[1])

    def _some(self, late: list[Completion]) -> list[Completion]:
        self._random.shuffle(late)
        count = self._random.randint(0, len(late))
        some, late[:] = late[:count], late[count:]
        return some


def dawdle(seed: int) -> Callable[[int, bytes], None]:
    """Return something to call before each step, which takes randomly long."""
    chance = random.Random(seed)
    return lambda frame, name: time.sleep(chance.choice(DELAYS_S))


def run(
    folder: Path,
    window: int,
    eager_bytes: int,
    direct: Collection[tuple[int, int]],
    seed: int,
    *,
    compress: bool,
) -> Results:
    job = read_driver(folder / "driver.py")
    job = compressed(job) if compress else job
    options = RunOptions(
        results=folder / "results.bin", frames=FRAMES, window=window, exact=True, bind=False
    )
    network = ThreadLinks(len(job.ranks), eager_bytes=eager_bytes, direct=direct)
    failures: list[BaseException] = []

    def work(rank: int) -> None:
        transport = LateTransport(network, rank, 31 * seed + rank)
        try:
            run_rank(job, folder, options, transport, on_step=dawdle(seed - rank))
        except BaseException as error:
            failures.append(error)
            transport.abort()

    threads = [threading.Thread(target=work, args=(spec.rank,), daemon=True) for spec in job.ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the job hangs"
    assert [] == failures
    return read_results(options.results)


@pytest.mark.parametrize("examples", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_whatever_takes_how_long_every_frame_comes_out_in_order_and_right(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(data=st.data(), network=networks(max_layers=10), seed=st.integers(0, 2**32))
    def check(data: st.DataObject, network: Network, seed: int) -> None:
        entries = data.draw(assignments(network.graph(), max_ranks=5))
        weights = data.draw(turn_weights(1 + max(entries.values())))
        window = data.draw(st.integers(1, 8))
        eager_bytes = data.draw(st.sampled_from([0, 1 << 20]))
        with tempfile.TemporaryDirectory() as temporary:
            folder = build_folder(Path(temporary), network.model(), entries, weights=weights)
            direct = data.draw(pairs_of(len(read_driver(folder / "driver.py").ranks)))
            compress = data.draw(st.booleans())
            results = run(folder, window, eager_bytes, direct, seed, compress=compress)
            expected = unsliced_outputs(folder, ["random"], FRAMES)
            assert list(range(FRAMES)) == results.records["frame"].tolist()
            for output, values in enumerate(expected):
                np.testing.assert_array_equal(values, results.values(output))

    check()
