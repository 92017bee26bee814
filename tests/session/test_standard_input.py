"""Frames on the standard input of ``rankslice run``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import COMMAND, rankslice
from jobs import build_folder
from videos import RELUS

from rankslice.backend.runtime import keeper
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.errors import RankSliceError
from rankslice.session import connection
from rankslice.session.connection import Connection


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_folder(tmp_path_factory.mktemp("stream"), RELUS, {"a": 0, "y": 1})


def test_frames_of_a_pipe_are_computed_in_order_and_its_end_ends_the_job(built: Path) -> None:
    values = np.random.default_rng(0).random((40, 1, 3, 4, 4), np.float32)
    results = built / "results.bin"
    job = subprocess.Popen(
        [*COMMAND, "run", built, "--input", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert job.stdin is not None
    with job.stdin as stream:
        for frame in values:
            stream.write(json.dumps({"x": frame.tolist()}).encode() + b"\n")
    assert 0 == job.wait(60)
    np.testing.assert_array_equal(values, read_results(results).values(0))


@contextmanager
def relayed(read: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    monkeypatch.setattr(connection, "_STDIN", read)
    stdin = connection.StandardInput()
    with Connection((), ("127.0.0.1", "127.0.0.1"), feed=stdin.send_to) as opened:
        yield opened.variables
    stdin.check()


def source(variables: Any, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    monkeypatch.setenv(keeper.VARIABLE, variables[keeper.VARIABLE])
    return keeper.connect(keeper.ROLE_SOURCE)


def test_a_reader_that_is_slow_holds_the_writer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    sent = os.urandom(1 << 23)
    written = 0

    def feed() -> None:
        nonlocal written
        while written < len(sent):
            written += os.write(write, sent[written : written + 65536])
        os.close(write)

    writer = threading.Thread(target=feed)
    with relayed(read, monkeypatch) as variables, source(variables, monkeypatch) as connection:
        writer.start()
        time.sleep(0.2)
        assert written < len(sent)
        received = bytearray(len(sent))
        assert keeper.receive(connection, received)
        assert b"" == connection.recv(1)
    writer.join()
    os.close(read)
    assert sent == received


def test_who_does_not_know_the_secret_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.write(write, b"frames")
    with relayed(read, monkeypatch) as variables:
        address = json.loads(variables[keeper.VARIABLE])["source"]
        with socket.create_connection(address, 5) as stranger:
            stranger.sendall(b"rankslice keeper 1\n" + bytes(200))
            heard = bytearray()
            with suppress(ConnectionResetError):
                while some := stranger.recv(1000):
                    heard += some
        assert b"frames" not in heard
        with source(variables, monkeypatch) as connection:
            assert b"frames" == connection.recv(100)
    os.close(read)
    os.close(write)


def test_an_input_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    run = relayed(folder, monkeypatch)
    variables = run.__enter__()
    with source(variables, monkeypatch) as connection:
        assert b"" == connection.recv(1)
    with pytest.raises(RankSliceError, match="standard input: cannot be read: Is a directory"):
        run.__exit__(None, None, None)
    os.close(folder)


def test_standard_input_and_standard_output_are_not_one_file(built: Path) -> None:
    ended = rankslice("run", built, "--input", "-", "--output", "-", "--dry-run")
    assert "is named by" not in ended.err
    assert "standard input: can be read only by 'rankslice run'" in ended.err
