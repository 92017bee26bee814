"""Ranks of one board find each other, hand over descriptors, and trust nobody else."""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations

import pytest
from board_ranks import Share, as_threads, connect, open_descriptors, other_ranks
from second_account import STRANGER, needs_root
from waiting import until

from rankslice.backend.runtime.direct.memory import make_memory
from rankslice.backend.runtime.direct.neighbours import (
    MAX_DESCRIPTORS,
    Discovery,
    Neighbour,
    address_of,
    close_all,
    find_neighbours,
    listen,
    swap,
)
from rankslice.backend.runtime.errors import JobError

NOTHING: dict[int, tuple[bytes, list[int]]] = {rank: (b"", []) for rank in range(3)}
"""A message for each rank."""


@pytest.fixture(scope="module", autouse=True)
def older_descriptors_are_closed() -> None:
    gc.collect()


@pytest.fixture(autouse=True)
def no_descriptor_stays_open() -> Iterator[None]:
    before = open_descriptors()
    yield
    # Threads that earlier tests have left may open and close some meanwhile.
    until(lambda: open_descriptors() <= before, 5)


@pytest.fixture
def ends() -> Iterator[tuple[Neighbour, Neighbour]]:
    """A stream within this process."""
    one, other = socket.socketpair()
    ranks = Neighbour(1, one, sends_first=True), Neighbour(0, other, sends_first=False)
    yield ranks
    close(*ranks)


def close(*neighbours: Neighbour) -> None:
    for neighbour in neighbours:
        neighbour.close()


def is_readable(descriptor: int, limit_s: float = 0.0) -> bool:
    return bool(select.select([descriptor], [], [], limit_s)[0])


# Who is a neighbour.


def test_all_ranks_of_a_board_are_neighbours() -> None:
    def step(rank: int, share: Share) -> tuple[Discovery, list[int]]:
        discovery = connect(rank, share)
        ranks = [
            neighbour.rank
            for neighbour in discovery.neighbours.values()
            if neighbour.process == os.getpid()
        ]
        close(*discovery.neighbours.values())
        return discovery, ranks

    for rank, (discovery, others) in enumerate(as_threads(8, step)):
        assert [other for other in range(8) if other != rank] == others
        assert set(combinations(range(8), 2)) == discovery.pairs
        assert set() == discovery.foreign


def test_a_rank_that_wants_none_has_none() -> None:
    def step(rank: int, share: Share) -> Discovery:
        discovery = connect(rank, share, wants=rank != 1)
        close(*discovery.neighbours.values())
        return discovery

    discovery = as_threads(4, step)
    assert [{2, 3}, set(), {0, 3}, {0, 2}] == [set(one.neighbours) for one in discovery]
    assert [{(0, 2), (0, 3), (2, 3)}] * 4 == [one.pairs for one in discovery]


@pytest.mark.parametrize("odd", [0, 2])
def test_a_rank_with_another_process_number_is_no_neighbour(odd: int) -> None:
    """As between containers that share the network."""

    def step(rank: int, share: Share) -> Discovery:
        discovery = connect(rank, share, process=1 if rank == odd else None)
        close(*discovery.neighbours.values())
        return discovery

    for discovery in as_threads(3, step):
        assert {pair for pair in combinations(range(3), 2) if odd not in pair} == discovery.pairs
        assert set() == discovery.foreign


def test_a_rank_in_another_network_namespace_is_no_neighbour() -> None:
    before = ["unshare", "--net"]
    try:
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
            pytest.skip("a network namespace takes root (CAP_SYS_ADMIN)")
    except OSError as error:
        pytest.skip(f"needs unshare: {error}")
    with other_ranks("connect(1, share)", before=before) as others:
        assert ({}, set(), set()) == connect(0, others.share)


def test_a_rank_of_another_account_is_no_neighbour_and_is_told() -> None:
    needs_root()
    with other_ranks(f"os.setuid({STRANGER}); share(connect(1, share).neighbours)") as others:
        assert ({}, set(), {(0, 1)}) == connect(0, others.share)
        assert [0, {}] == others.share(0)


def test_strangers_at_the_door_are_refused() -> None:
    program = """
import socket, struct, sys
ends = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for end, says in zip(ends, (struct.pack("=I", 1), b"", b"GET /")):
    end.connect(sys.argv[1].encode().replace(b"@", bytes(1)))
    end.send(says)
print("called", flush=True)
input()
for end in ends:
    try:
        print(len(end.recv(1)))
    except ConnectionResetError:
        print(0)
"""

    def step(rank: int, share: Share) -> set[int]:
        with listen() as listener:
            addresses = share(address_of(listener))
            if rank == 0:
                words = [sys.executable, "-c", program, address_of(listener).replace("\0", "@")]
                stranger = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                assert stranger.stdout is not None
                assert "called\n" == stranger.stdout.readline()
            share(None)
            discovery = find_neighbours(rank, [os.getpid()] * 2, listener, addresses, share)
            if rank == 0:
                assert "0\n" * 3 == stranger.communicate("\n", timeout=20)[0]
        close(*discovery.neighbours.values())
        return set(discovery.neighbours)

    assert [{1}, {0}] == as_threads(2, step)


def test_a_caller_that_has_vanished_holds_nobody_up() -> None:
    with listen() as listener:
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(address_of(listener))
        caller.send(struct.pack("=I", 1))
        caller.close()
        answers = iter([[[], [0], [0]], [[1], [0], [0]], [[], [], []]])
        discovery = find_neighbours(
            0,
            [os.getpid()] * 3,
            listener,
            [address_of(listener), "gone", "gone"],
            lambda _: next(answers),
        )
    # Rank 1 called and hung up, rank 2 only said that it had called.
    assert {(0, 1)} == discovery.pairs
    with pytest.raises(JobError, match=r"rank 1: its process \(number \d+\) has ended"):
        discovery.neighbours[1].receive()
    close(*discovery.neighbours.values())


# Messages.


def test_memory_is_handed_over_between_processes() -> None:
    program = """
import mmap
(neighbour,) = connect(1, share).neighbours.values()
message, (descriptor,) = swap({0: neighbour}, {0: (b"", ())})[0]
memory = map_memory(descriptor, int(message))
share(None)
def refused(step):
    try:
        step()
    except PermissionError:
        return True
share([
    int(memory.sum()),
    os.get_inheritable(descriptor),
    refused(lambda: os.ftruncate(descriptor, 0)),
    refused(lambda: mmap.mmap(descriptor, len(memory))),
])
"""
    with other_ranks(program) as others:
        neighbours = connect(0, others.share).neighbours
        descriptor, memory = make_memory(5000)
        assert {1: (b"", [])} == swap(neighbours, {1: (b"5000", [descriptor])})
        memory[:] = 2
        others.share(None)
        assert [10_000, False, True, True] == others.share(None)[1]
        os.close(descriptor)
        close(*neighbours.values())


def test_large_messages_in_both_directions_do_not_stop_each_other() -> None:
    size = 4 << 20

    def step(rank: int, share: Share) -> list[tuple[int, bytes]]:
        neighbours = connect(rank, share).neighbours
        messages = {other: (bytes([rank]) * size, ()) for other in neighbours}
        swapped = swap(neighbours, messages)
        share(None)
        close(*neighbours.values())
        return [(other, message) for other, (message, _) in swapped.items()]

    for rank, received in enumerate(as_threads(4, step)):
        assert [(other, bytes([other]) * size) for other in range(4) if other != rank] == received


def test_many_descriptors_come_with_one_message(ends: tuple[Neighbour, Neighbour]) -> None:
    sent = [os.pipe() for _ in range(MAX_DESCRIPTORS // 2)]
    ends[0].send(b"pipes", [end for pipe in sent for end in pipe])
    message, received = ends[1].receive()
    assert (b"pipes", MAX_DESCRIPTORS) == (message, len(received))
    os.write(received[-1], b"x")
    assert b"x" == os.read(sent[-1][0], 10)
    close_all([*received, *(end for pipe in sent for end in pipe)])


def test_a_message_says_how_many_descriptors_it_had(ends: tuple[Neighbour, Neighbour]) -> None:
    stream = ends[0]._stream
    one = array.array("i", [stream.fileno()])
    stream.sendmsg([struct.pack("=QI", 0, 2)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, one)])
    with pytest.raises(JobError, match=r"rank 0: 1 of its 2 descriptors arrived.*ulimit -n"):
        ends[1].receive()


def test_descriptors_wait_while_their_user_has_too_many_on_the_way() -> None:
    needs_root()
    program = f"""
import resource, socket, threading
from rankslice.backend.runtime.direct.neighbours import Neighbour
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.setuid({STRANGER})
pairs = [socket.socketpair() for _ in range(8)]
writers = [Neighbour(1, one, sends_first=True) for one, _ in pairs]
readers = [Neighbour(0, other, sends_first=False) for _, other in pairs]
def read():
    for reader in readers:
        for descriptor in reader.receive()[1]:
            os.close(descriptor)
late = threading.Timer(0.1, read)
late.start()
for writer in writers:
    writer.send(b"", [0] * 20)
late.join()
share("done")
"""
    with other_ranks(program) as others:
        assert [0, "done"] == others.share(0)


@pytest.mark.parametrize("sent", [b"", b"123", struct.pack("=QI", 1000, 0) + b"begin"])
def test_a_message_that_ends_early_is_an_error(
    ends: tuple[Neighbour, Neighbour], sent: bytes
) -> None:
    ends[0]._stream.sendall(sent)
    ends[0].close()
    with pytest.raises(JobError, match=r"rank 0: its process .* has ended"):
        ends[1].receive()
    with pytest.raises(JobError, match=r"rank 0: its process .* has ended"):
        ends[1].send(b"")


def test_a_message_without_bound_is_refused(ends: tuple[Neighbour, Neighbour]) -> None:
    ends[0]._stream.sendall(struct.pack("=QI", 1 << 60, 0))
    with pytest.raises(JobError, match="rank 0: sent a message of 1152921504606846976 bytes"):
        ends[1].receive()


def test_what_has_come_is_closed_if_a_swap_fails() -> None:
    def step(rank: int, share: Share) -> None:
        neighbours = connect(rank, share).neighbours
        if rank == 2:
            close(*neighbours.values())
            return
        with socket.socket() as sent:
            messages = {other: (b"", [sent.fileno()]) for other in neighbours}
            with pytest.raises(JobError, match="rank 2: "):
                swap(neighbours, messages)
        close(*neighbours.values())

    as_threads(3, step)


def test_a_rank_whose_swap_fails_keeps_no_other_rank_waiting() -> None:
    def step(rank: int, share: Share) -> str:
        neighbours = connect(rank, share).neighbours
        try:
            if rank == 0:
                neighbours[1]._stream.sendall(struct.pack("=QI", 1 << 60, 0))
                neighbours[1].receive()
            else:
                swap({r: neighbours[r] for r in neighbours if 1 in (r, rank)}, NOTHING)
        except JobError as error:
            share("all have failed")
            return type(error).__name__
        finally:
            close(*neighbours.values())
        return ""

    assert ["NeighbourDiedError", "JobError", "NeighbourDiedError"] == as_threads(3, step)


# The end of a neighbour.


def test_the_death_of_a_process_is_an_event() -> None:
    with other_ranks("found = connect(1, share); input()") as others:
        (neighbour,) = connect(0, others.share).neighbours.values()
        assert others.processes[0].pid == neighbour.process
        assert not is_readable(neighbour.death)
        os.kill(neighbour.process, signal.SIGKILL)
        assert is_readable(neighbour.death, limit_s=10)
        neighbour.close()


def test_without_a_handle_of_the_process_a_hang_up_tells_of_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules[Neighbour.__module__]
    monkeypatch.setattr(module, "_SO_PEERPIDFD", -1)
    one, other = socket.socketpair()
    by_number = Neighbour(1, one, sends_first=True)
    assert one.fileno() != by_number.death

    def refuse(_: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    by_stream = Neighbour(0, other, sends_first=False)
    assert other.fileno() == by_stream.death
    assert not is_readable(by_stream.death)
    by_number.close()
    assert is_readable(by_stream.death, limit_s=10)
    by_stream.close()
