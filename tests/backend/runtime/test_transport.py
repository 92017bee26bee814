"""Looks at the messages of a real MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_jobs import debians_mpirun, wheels_mpirun

from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.transport import prefer

MESSAGES_CROSS = """
import sys, time
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.transport import MpiTransport
from rankslice.backend.runtime.transport import Lane

are_connected, have_crossed = (Path(sys.argv[1]) / name for name in ("connected", "crossed"))


def wait_for(file):
    while not file.exists():
        time.sleep(0.01)


mpi = MpiTransport()
there, back = (tuple(np.zeros(16, np.uint8) for _ in range(2)) for _ in range(2))
peer = 1 - mpi.rank
mpi.open([Lane(mpi.rank, peer, there)], [Lane(peer, peer, back)])
mpi.receive(0, 0)
mpi.exchange(b"")
if mpi.rank == 0:
    mpi.send(0, 0)
    are_connected.touch()
    wait_for(have_crossed)
    sent, received = mpi.poll()
    print(len(sent), len(received))
else:
    wait_for(are_connected)
    while not mpi.poll()[1]:
        pass
    mpi.send(0, 0)
    have_crossed.touch()
mpi.exchange(b"")
mpi.close()
"""

SIZES_CHANGE = """
import os, sys, time

import numpy as np

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.transport import MpiTransport
from rankslice.backend.runtime.transport import Lane

SIZES = [64, 1064, 65, 300_064, 64, 100]
LONGER = 3000
mpi = MpiTransport()
slots = tuple(np.full(max(SIZES), 9 * mpi.rank, np.uint8) for _ in SIZES)
# Open MPI writes beyond a receive buffer that is too short, so there is room behind this one.
short = np.zeros(LONGER, np.uint8)[: LONGER if mpi.rank == 0 else 100]
lanes = [Lane(1, 1 - mpi.rank, slots, True), Lane(2, 1 - mpi.rank, (short,), True)]
mpi.open(*([lanes, []] if mpi.rank == 0 else [[], lanes]))
if mpi.rank == 1:
    for slot in range(len(SIZES)):
        mpi.receive(0, slot)
    mpi.receive(1, 0)
mpi.exchange(b"")
found = []
if mpi.rank == 0:
    for slot, size in enumerate(SIZES):
        slots[slot][:size] = slot + 1
        mpi.send_part(0, slot, size)
while len(found) < len(SIZES):
    found += mpi.poll()[mpi.rank]
if mpi.rank == 0:
    mpi.exchange(b"")
    print("sent", sorted(each.slot for each in found) == [*range(len(SIZES))], flush=True)
    mpi.send_part(1, 0, LONGER)
else:
    print("lengths", [each.nbytes for each in sorted(found)] == SIZES, flush=True)
    whole = all(
        (values[:size] == number).all() and (values[size:] == 9).all()
        for number, (values, size) in enumerate(zip(slots, SIZES), 1)
    )
    print("values", whole, flush=True)
    mpi.exchange(b"")
    try:
        while True:
            mpi.poll()
    except JobError as error:
        print(error, flush=True)
mpi.exchange(b"")
os._exit(0)
"""

NUMBERS_CROSS = """
import time

import numpy as np

from rankslice.backend.runtime.transport import MpiTransport
from rankslice.backend.runtime.transport import Lane

mpi = MpiTransport()
slot = (np.zeros(8, np.uint8),)
mpi.open([Lane(0, 1 - mpi.rank, slot)], [Lane(0, 1 - mpi.rank, slot)])
mpi.receive(0, 0)
if mpi.rank == 0:
    for number in range(100):
        mpi.send_number(1, number + (1 << 62))
        assert mpi.receive_number(1) == -number, number
    print("heard", flush=True)
else:
    time.sleep(0.3)  # the other one has to wait
    for _ in range(100):
        mpi.send_number(0, (1 << 62) - mpi.receive_number(0))
mpi.exchange(b"")
mpi.close()
"""


@pytest.mark.ci
@pytest.mark.parametrize("find", [wheels_mpirun, debians_mpirun])
def test_numbers_cross_beside_the_messages_of_channels(tmp_path, monkeypatch, find):
    done = run_two(NUMBERS_CROSS, tmp_path, monkeypatch, find, "tcp")
    assert "heard" == done.stdout.strip(), done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("find", [wheels_mpirun, debians_mpirun])
@pytest.mark.parametrize("network", ["shared memory", "tcp"])
def test_messages_have_sizes_of_their_own_and_are_never_longer_than_a_slot(
    tmp_path, monkeypatch, find, network
):
    done = run_two(SIZES_CHANGE, tmp_path, monkeypatch, find, network)
    expected = {
        "sent True",
        "lengths True",
        "values True",
        "rank 0 sent 3000 bytes through channel 2, more than its tensor may have",
    }
    assert expected <= {*done.stdout.splitlines()}, done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("find", [wheels_mpirun, debians_mpirun])
@pytest.mark.parametrize("network", ["shared memory", "tcp"])
def test_one_look_finds_what_has_crossed_before(tmp_path, monkeypatch, find, network):
    done = run_two(MESSAGES_CROSS, tmp_path, monkeypatch, find, network)
    assert "1 1" == done.stdout.strip(), done.stderr


def run_two(program, tmp_path, monkeypatch, find, network):
    """Run a program as two ranks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # away from what killed mpiruns have left
    mpirun = find_mpirun(find())
    command = [mpirun.path, "-n", "2", "--map-by", "slot:oversubscribe", "--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    command += tcp if network == "tcp" else []
    command += ["-x", f"MPI4PY_LIBMPI={mpirun.library}"] if mpirun.library else []
    command += [sys.executable, "-c", program, tmp_path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("library", "name"), [("5.0.11", "sm"), ("4.1.4", "vader")])
def test_ranks_of_one_machine_share_memory_in_the_jobs_folder(library: str, name: str) -> None:
    environment = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    prefer(environment, f"Open MPI v{library}", Path("/dev/shm/own"))
    assert f"self,{name}" == environment["OMPI_MCA_btl"]
    assert "/dev/shm/own" == environment[f"OMPI_MCA_btl_{name}_backing_directory"]


def test_what_the_user_sets_for_the_library_counts() -> None:
    own = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_sm_backing_directory": "/elsewhere"}
    environment = {**own, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    before = dict(environment)
    prefer(environment, "Open MPI v5.0.11", Path("/dev/shm/own"))
    assert before == environment


def test_ranks_of_several_machines_choose_their_network_themselves() -> None:
    environment = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    prefer(environment, "Open MPI v5.0.11", None)
    assert "OMPI_MCA_btl" not in environment
