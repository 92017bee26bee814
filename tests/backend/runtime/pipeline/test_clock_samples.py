from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from real_jobs import chain_folder
from twin import ThreadLinks

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.pipeline.collectives import KEPT, Sample, sample_clocks
from rankslice.framework.reading.read_driver import read_driver


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of four ranks, the first of which has the source."""
    return read_driver(chain_folder(tmp_path_factory.mktemp("job"), 4) / "driver.py")


def sampled(job: Job, *boards: str) -> list[list[Sample]]:
    """Return what each rank samples if the ranks are on these boards."""
    ranks = tuple(replace(rank, board=name) for rank, name in zip(job.ranks, boards, strict=True))
    job = replace(job, ranks=ranks)
    links = ThreadLinks(len(boards))
    with ThreadPoolExecutor(len(boards)) as pool:
        samples = pool.map(
            lambda rank: sample_clocks(job, links.transport(rank)), range(len(boards))
        )
    return list(samples)


def test_the_lowest_rank_of_each_other_board_compares_its_clock(job: Job) -> None:
    samples = sampled(job, "a", "b", "b", "c")
    assert [0, KEPT, 0, KEPT] == [len(kept) for kept in samples]
    for own_ns, other_ns, trip_ns in (*samples[1], *samples[3]):
        # Threads of one process have one clock.
        assert abs(other_ns - own_ns) <= trip_ns / 2 + 1


def test_ranks_of_one_board_have_one_clock(job: Job) -> None:
    assert [[], [], [], []] == sampled(job, "a", "a", "a", "a")
