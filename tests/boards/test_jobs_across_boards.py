"""A job runs across boards over ssh, started by hand as docs/virtual-boards.md says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from jobs import unsliced_outputs
from real_jobs import DIGITS, debians_mpirun, wheels_mpirun

from boards import Boards
from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.ci

FRAMES = 200
CHANNEL_BYTES = 1536
JOB = "/root/job"


@pytest.fixture(scope="module")
def folder(boards: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder for the boards, whose packages they have."""
    place = tmp_path_factory.mktemp("job")
    mapping = {
        "board1_cpu0": ["conv1..pool1"],
        "board2_cpu0": ["conv3..relu3"],
        "board1_cpu0.2": ["conv4..softmax"],
    }
    hosts = {board.name: {"host": board.address, "cores": 1} for board in boards}
    (place / "mapping.json").write_text(json.dumps(mapping))
    (place / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    paths = (place / "mapping.json", place / "platform.yaml", place / "out")
    made = build(DIGITS, paths[0], str(paths[1]), paths[2], BuildOptions(share_cores=True)).folder
    for board in boards:
        board.put(made / "packages" / board.name, JOB)
    return made


def launch_line(boards: Boards, folder: Path, mpirun: Path) -> list[str]:
    """Return what starts the job of a folder from this machine."""
    found = find_mpirun(mpirun)
    ssh, subnet = f"-F {boards.ssh_config}", boards.names.subnet
    line = [str(mpirun), "--allow-run-as-root", "-n", "3"]
    line += ["--mca", "btl_tcp_if_include", subnet]
    if found.version[0] >= 5:
        line += ["--map-by", f"rankfile:file={folder}/rankfile"]
        line += ["--prtemca", "hwloc_default_binding_policy", "none"]
        line += ["--hostfile", f"{folder}/hostfile"]
        line += ["--prtemca", "plm_ssh_args", ssh, "--prtemca", "prte_if_include", subnet]
    else:
        addresses = [boards[number].address for number in (0, 1, 0)]
        line += ["--map-by", "seq", "--bind-to", "none", "--host", ",".join(addresses)]
        line += ["--mca", "plm_rsh_args", ssh, "--mca", "oob_tcp_if_include", subnet]
        line += ["-x", f"MPI4PY_LIBMPI={found.library}"]
    driver = [f"{JOB}/driver.py", f"--frames={FRAMES}", "--exact"]
    outputs = [f"--results={JOB}/results.bin", f"--report={JOB}/report.json"]
    return [*line, sys.executable, *driver, *outputs]


@pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
def test_two_boards_compute_what_the_unsliced_model_does(
    open_mpi: Callable[[], Path], boards: Boards, folder: Path, tmp_path: Path
) -> None:
    mpirun = open_mpi()
    sent = boards[0].traffic()
    line = launch_line(boards, folder, mpirun)
    subprocess.run(line, check=True, timeout=120, capture_output=True)
    sent = boards[0].traffic().since(sent)
    for name in ("report.json", "results.bin"):
        boards[0].get(f"{JOB}/{name}", tmp_path / name)
    report = json.loads((tmp_path / "report.json").read_text())
    assert ["board1", "board2", "board1"] == [rank["host"] for rank in report["ranks"]]
    assert [[0]] * 3 == [rank["cores"] for rank in report["ranks"]]
    (expected,) = unsliced_outputs(folder, ["random"], FRAMES)
    results = read_results(tmp_path / "results.bin")
    np.testing.assert_array_equal(expected, results.values(0))
    assert FRAMES * CHANNEL_BYTES < sent.sent
