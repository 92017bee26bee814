"""Jobs where mpirun numbers cores as the kernel does not, or asks a batch system for machines."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import Ended, rankslice
from namespaces import cpuset, run_with_mounts, threads_of_one_core
from real_jobs import CORES, DIGITS, debians_mpirun, wheels_mpirun

from rankslice.session.building.build import BuildOptions, build

BOTH = pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
LAYERS = (["conv1..pool1"], ["conv3..relu3"], ["conv4..softmax"])
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="needs two CPUs")


def folder_of(place: Path, cores: Sequence[int]) -> Path:
    """Build the digits network for three ranks; each has one of the cores, round and round."""
    keys = [f"local_cpu{cores[number % len(cores)]}" for number in range(3)]
    before = [keys[:at].count(key) for at, key in enumerate(keys)]
    keys = [f"{key}.{n + 1}" if n else key for key, n in zip(keys, before, strict=True)]
    (place / "mapping.json").write_text(json.dumps(dict(zip(keys, LAYERS, strict=True))))
    options = BuildOptions(share_cores=True)
    # Open MPI 5 has taken "pe" in the path of a rankfile for an option.
    return build(DIGITS, place / "mapping.json", "local", place / "peter", options).folder


def arguments(folder: Path, mpirun: Path) -> list[str | Path]:
    return ["run", folder, "--frames", "10", "--verify", "--mpirun", mpirun]


def assert_right(ended: Ended) -> None:
    assert 0 == ended.code, ended.err
    assert "verify passed: 10 frames compared" in ended.out


@TWO_CORES
@BOTH
@pytest.mark.ci
def test_each_thread_of_a_core_runs_a_rank(open_mpi: Callable[[], Path], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, CORES[:2])
    mounts = threads_of_one_core(tmp_path, CORES[:2])
    assert_right(run_with_mounts(mounts, *arguments(folder, open_mpi())))


@TWO_CORES
@BOTH
@pytest.mark.ci
def test_a_container_has_other_cores_than_the_first(
    open_mpi: Callable[[], Path], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, CORES[-1:])
    with cpuset(CORES[-1]) as entering:
        assert_right(run_with_mounts(entering, *arguments(folder, open_mpi())))


@TWO_CORES
@pytest.mark.ci
def test_a_core_outside_a_container_is_told_with_those_inside(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, CORES[:1])
    with cpuset(CORES[-1]) as entering:
        ended = run_with_mounts(entering, *arguments(folder, wheels_mpirun()))
    assert 1 == ended.code
    first, usable = CORES[0], CORES[-1]
    expected = f"core {first} is not allowed to this process; the process may use core {usable}:"
    assert f"rank 0 (local_cpu{first} on localhost): {expected}" in ended.err


SLURM = {
    **dict.fromkeys(["SLURM_JOBID", "SLURM_JOB_ID"], "77"),
    **dict.fromkeys(["SLURM_NODELIST", "SLURM_JOB_NODELIST"], "HOST"),
    **dict.fromkeys(["SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS"], "1"),
    **dict.fromkeys(["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"], "1"),
}
PBS = {"PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": "77.HOST", "PBS_NODEFILE": "FILE"}
GRID_ENGINE = {"SGE_ROOT": "/opt", "ARC": "lx", "JOB_ID": "77", "PE_HOSTFILE": "FILE"}


def ends_right(
    folder: Path, mpirun: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a job inside what its variables call an allocation of one task."""
    host, file = socket.gethostname(), folder.with_name("nodes")
    file.write_text(f"{host} 1 all.q@{host} UNDEFINED\n" if "ARC" in variables else f"{host}\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("HOST", host).replace("FILE", str(file)))
    assert_right(rankslice(*arguments(folder, mpirun)))


def test_a_job_of_more_ranks_than_its_allocation_has_tasks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_right(folder_of(tmp_path, CORES), wheels_mpirun(), SLURM, monkeypatch)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("variables", "open_mpi"),
    [
        (SLURM, debians_mpirun),
        (PBS, wheels_mpirun),
        (PBS, debians_mpirun),
        (GRID_ENGINE, wheels_mpirun),
        (GRID_ENGINE, debians_mpirun),
    ],
)
def test_the_allocation_may_be_of_any_batch_system_and_open_mpi(
    variables: dict[str, str],
    open_mpi: Callable[[], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends_right(folder_of(tmp_path, CORES), open_mpi(), variables, monkeypatch)


@BOTH
@pytest.mark.ci
def test_a_machine_without_an_ssh_client_runs_jobs_of_its_own(
    open_mpi: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mpirun = folder_of(tmp_path, CORES), open_mpi()
    (tmp_path / "ldd").symlink_to("/usr/bin/ldd")  # it finds the library of an mpirun
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_right(rankslice(*arguments(folder, mpirun)))
