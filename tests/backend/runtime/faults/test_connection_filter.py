"""The connection filter in front of a program that is no rank: who may connect to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from second_account import AS_STRANGER, STRANGER, needs_root

from rankslice.backend.runtime.faults import connection_filter

PROGRAM = """
use IO::Socket::INET;
$| = 1;
$own = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
print $own->sockport, "\\n";
while (<STDIN>) {
    vec($wanted = "", fileno($own), 1) = 1;
    select($wanted, undef, undef, 5);
    $client = $own->accept;
    print $client ? "took " . <$client> : "nobody: $!\\n";
}
"""
"""Take a connection for each line of standard input, and print the connection's line."""

CONNECTS = """
connection = socket.socket()
connection.connect(("127.0.0.1", int(sys.argv[1])))
print(os.getuid(), "has connected", flush=True)
print("it was closed" if not connection.recv(1) else "?")
"""


@contextmanager
def listening(reach: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Give a program that listens behind the connection filter, and its port."""
    line = [sys.executable, "-E", "-S", connection_filter.__file__, str(os.getpid()), reach]
    with subprocess.Popen(
        [*line, "perl", "-e", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        yield program, int(program.stdout.readline())
        program.stdin.close()


def taken(program: subprocess.Popen[str]) -> str:
    """Have the program take a connection; return what it says."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return program.stdout.readline()


def test_connections_of_this_account_are_handed_over() -> None:
    with listening("loopback") as (program, port):
        for number in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"%d\n" % number)
                assert f"took {number}\n" == taken(program)


def test_a_client_that_has_gone_proves_nothing() -> None:
    with listening("loopback") as (program, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"blind\n")
        assert taken(program).startswith("nobody: ")


def test_a_client_of_another_account_is_refused_and_the_next_one_taken() -> None:
    needs_root()
    with listening("loopback") as (program, port):
        line = [sys.executable, "-c", AS_STRANGER + CONNECTS, str(port)]
        with subprocess.Popen(line, cwd="/", stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout is not None
            assert f"{STRANGER} has connected\n" == stranger.stdout.readline()
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"own\n")
                assert "took own\n" == taken(program)
            assert "it was closed\n" == stranger.stdout.readline()


def test_without_a_filter_anyone_connects() -> None:
    with listening("all") as (program, port), socket.create_connection(("127.0.0.1", port)) as end:
        end.sendall(b"one\n")
        assert "took one\n" == taken(program)


def test_of_an_argument_only_the_half_counts_that_the_kernel_looks_at() -> None:
    make = connection_filter._CALLS[os.uname().machine, 8][2]
    program = f'print syscall({make}, 2 | 1 << 40, 1, 0) < 0 ? "none: $!" : "made"'
    line = [sys.executable, "-E", "-S", connection_filter.__file__, str(os.getpid()), "loopback"]
    ended = subprocess.run(
        [*line, "perl", "-e", program], stdout=subprocess.PIPE, text=True, timeout=30, check=True
    )
    assert "made" == ended.stdout
