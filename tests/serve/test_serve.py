"""The command: a server of a real job, from its start to a signal."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from command_line import rankslice, succeed
from numpy.typing import NDArray
from real_jobs import digits_folder, shared_keys
from waiting import until

from rankslice.backend.runtime.sinks.results import read_results
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.building.build import BuildOptions, build

PROGRAM = Path(sys.executable).with_name("rankslice")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("served"))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Yield the command, and its addresses for HTTP and gRPC."""
    line = [str(PROGRAM), "serve", str(folder), "--http", "0", "--grpc", "0", "--queue", "32"]
    with subprocess.Popen(
        [*line, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as server:
        try:
            assert server.stdout is not None
            first_line = server.stdout.readline()
            match = re.search(r"http://(\S+?)/v2/models/\S+, grpc (\S+)", first_line)
            assert match is not None, first_line
            yield server, match[1], match[2]
        finally:
            server.kill()


@pytest.mark.ci
def test_clients_of_both_kinds_get_what_a_run_gives(folder: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(3).random((48, 1, 1, 8, 8), np.float32)
    np.save(tmp_path / "images.npy", images)
    succeed("run", folder, "--input", tmp_path / "images.npy", "--results", tmp_path / "r.bin")
    expected = read_results(tmp_path / "r.bin").values(0)

    def ask(number: int) -> list[NDArray[np.float32]]:
        """Return the results of all images, of which each client begins with another one."""
        kind, address = (
            (tritonclient.http, http_address),
            (tritonclient.grpc, grpc_address),
        )[number % 2]
        client = kind.InferenceServerClient(address)
        results: dict[int, NDArray[np.float32]] = {}
        for place in np.roll(np.arange(len(images)), 3 * number).tolist():
            tensor = kind.InferInput("image", [1, 1, 8, 8], "FP32")
            tensor.set_data_from_numpy(images[place])
            results[place] = client.infer("digits", [tensor]).as_numpy("probabilities")
        client.close()
        return [results[place] for place in range(len(images))]

    with serving(folder) as (server, http_address, grpc_address):
        with ThreadPoolExecutor(16) as pool:
            for results in pool.map(ask, range(16)):
                assert expected.tobytes() == np.stack(results).tobytes()
        job = psutil.Process(server.pid).children(recursive=True)
        assert job
        server.send_signal(signal.SIGTERM)
        assert 0 == server.wait(30)
        assert server.stderr is not None
        assert "answering the accepted requests, then ending\n" == server.stderr.read()
        assert [] == psutil.wait_procs(job, 10)[1]


@pytest.mark.ci
def test_a_rank_that_dies_is_told_to_clients_and_the_server_stays(folder: Path) -> None:
    with serving(folder) as (server, address, _):
        client = tritonclient.http.InferenceServerClient(address)
        ranks = [
            process
            for process in psutil.Process(server.pid).children(recursive=True)
            if "driver.py" in " ".join(process.cmdline())
            and "OMPI_COMM_WORLD_RANK" in process.environ()
        ]
        assert ranks
        ranks[-1].kill()
        tensor = tritonclient.http.InferInput("image", [1, 1, 8, 8], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))
        psutil.wait_procs(ranks, 30)
        for _ in range(100):
            if not client.is_model_ready("digits"):
                break
            with pytest.raises(Exception, match=r"rank|ended"):
                client.infer("digits", [tensor])
        with pytest.raises(Exception, match="rank"):
            client.infer("digits", [tensor])
        assert client.is_server_live()
        client.close()
        server.send_signal(signal.SIGINT)
        assert 1 == server.wait(30)
        assert server.stderr is not None
        assert "error: digits: rank " in server.stderr.read()


@pytest.mark.ci
def test_rows_that_share_a_batch_are_those_of_a_run(tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        rows (float[batch,64] x) => (float[batch,10] y)
        { h = MatMul(x, w)
            r = Relu(h)
            y = MatMul(r, v) }
    """
    model = onnx.parser.parse_model(text)
    chance = np.random.default_rng(5)
    for name, shape in {"w": (64, 32), "v": (32, 10)}.items():
        weights = chance.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    for number, node in enumerate(model.graph.node):
        node.name = f"layer{number}"
    onnx.save(model, tmp_path / "rows.onnx")
    first, second = shared_keys(2)
    mapping = {first: ["layer0", "layer1"], second: ["layer2"]}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    options = BuildOptions(share_cores=True, sizes=GivenSizes(fixed={"batch": (4,)}))
    folder = build(
        tmp_path / "rows.onnx", tmp_path / "mapping.json", "local", tmp_path / "out", options
    ).folder
    values = chance.standard_normal((12, 64), np.float32)
    np.save(tmp_path / "x.npy", values.reshape(3, 4, 64))
    succeed("run", folder, "--input", tmp_path / "x.npy", "--results", tmp_path / "r.bin")
    expected = read_results(tmp_path / "r.bin").values(0).reshape(12, 10)

    def ask(number: int) -> bytes:
        client = tritonclient.grpc.InferenceServerClient(address)
        tensor = tritonclient.grpc.InferInput("x", [1, 64], "FP32")
        tensor.set_data_from_numpy(values[number : number + 1])
        row: bytes = client.infer("rows", [tensor]).as_numpy("y").tobytes()
        client.close()
        return row

    with serving(folder, "--max-delay", "20") as (_, _, address), ThreadPoolExecutor(12) as pool:
        assert [row.tobytes() for row in expected] == list(pool.map(ask, range(12)))


def infer(address: str) -> str:
    """Return the status of a request, and what the client is told."""
    connection = http.client.HTTPConnection(address, timeout=20)
    headers = {"Inference-Header-Content-Length": "0"}
    connection.request("POST", "/v2/models/digits/infer", bytes(256), headers)
    answer = connection.getresponse()
    text = answer.read().decode("latin-1")
    connection.close()
    return f"{answer.status} {text}"


def figures(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        return str(answer.read(), "ascii")


def events(server: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what the command logs, all of it in JSON."""
    assert server.stderr is not None
    yield from map(json.loads, server.stderr)


@pytest.mark.ci
def test_a_link_that_leads_elsewhere_is_followed_at_sighup_and_two_signals_end_at_once(
    folder: Path, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(folder)
    with serving(link, "--log", "json") as (server, address, _):
        logged = events(server)
        assert "ready" == next(logged)["event"]

        link.unlink()
        link.symlink_to(tmp_path / "nowhere")
        server.send_signal(signal.SIGHUP)
        refused = next(logged)
        assert ("not_reloaded", "warning") == (refused["event"], refused["level"])
        assert "nowhere" in refused["message"]
        assert infer(address).startswith("200")
        assert "request" == next(logged)["event"]

        shutil.copytree(folder, tmp_path / "second")
        link.unlink()
        link.symlink_to(tmp_path / "second")
        server.send_signal(signal.SIGHUP)
        assert "reloading" == next(logged)["event"]
        assert infer(address).startswith("200")
        assert {"ready", "request"} == {next(logged)["event"] for _ in range(2)}
        assert infer(address).startswith("200")
        lines = [
            " ".join(process.cmdline()) for process in psutil.Process(server.pid).children(True)
        ]
        assert any(str(tmp_path / "second") in line for line in lines)
        assert not any(str(folder) in line for line in lines)

        (rank,) = (
            process
            for process in psutil.Process(server.pid).children(True)
            if process.environ().get("OMPI_COMM_WORLD_RANK") == "1"
            and "driver.py" in " ".join(process.cmdline())
        )
        rank.suspend()  # so that a request has no answer
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(infer, address)
            until(lambda: 'rankslice_frames{model="digits",version="1"} 1.0' in figures(address))
            server.send_signal(signal.SIGTERM)
            assert "draining" in (event["event"] for event in logged)
            server.send_signal(signal.SIGTERM)
            assert 128 + signal.SIGTERM == server.wait(8)
            assert waiting.result()[:3] in ("200", "503")  # mpirun wakes the rank to end it


def times(factor: int, folder: Path) -> Path:
    """Build a model that multiplies by a factor; return its folder."""
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        scaled (float[1,4] x) => (float[1,4] y) <float[1] f = {{{factor}.0}}> {{ y = Mul(x, f) }}
    """
    source = folder.parent / f"source-{folder.name}"
    source.mkdir(parents=True)
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = "scaling"
    onnx.save(model, source / "scaled.onnx")
    (source / "mapping.json").write_text(json.dumps({shared_keys(1)[0]: ["scaling"]}))
    options = BuildOptions(share_cores=True)
    return build(source / "scaled.onnx", source / "mapping.json", "local", folder, options).folder


class Client(threading.Thread):
    """Asks 50 times a second, until it is told to stop."""

    def __init__(self, address: str, version: str) -> None:
        super().__init__(daemon=True)
        self.url = f"http://{address}/v2/models/scaled/{version}infer"
        self.answers: Counter[float] = Counter()
        self.refusals: list[str] = []
        self.is_over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.is_over.wait(0.02):
            data = np.ones(4, np.float32).tobytes()
            headers = {"Inference-Header-Content-Length": "0"}
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, data, headers)) as of:
                    self.answers[json.loads(of.read())["outputs"][0]["data"][0]] += 1
            except OSError as error:
                self.refusals.append(str(error))

    def stop(self) -> None:
        self.is_over.set()
        self.join()


def versions_in(address: str) -> list[tuple[str, str]]:
    """Return the versions that a server lists, with their states."""
    request = urllib.request.Request(f"http://{address}/v2/repository/index", b"")
    with urllib.request.urlopen(request) as answer:
        return [(of["version"], of["state"]) for of in json.loads(answer.read())]


def come_change_and_go(address: str, place: Path, two: Path, three: Path, aside: Path) -> None:
    """Add version 2, replace it, and remove it, while a client asks it."""
    shutil.copytree(two, place, symlinks=True)
    until(lambda: versions_in(address) == [("1", "READY"), ("2", "READY")], 30)
    client = Client(address, "versions/2/")
    until(lambda: client.answers[2.0] > 3)
    place.rename(aside)
    shutil.copytree(three, place, symlinks=True)
    until(lambda: client.answers[3.0] > 3, 30)
    client.stop()
    assert ([], {2.0, 3.0}) == (client.refusals, {*client.answers})
    shutil.rmtree(aside)
    shutil.rmtree(place)
    until(lambda: versions_in(address) == [("1", "READY")], 30)


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(2, marks=pytest.mark.ci),
        pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_versions_come_change_and_go_without_a_refused_request(tmp_path: Path, rounds: int) -> None:
    two, three = times(2, tmp_path / "built" / "two"), times(3, tmp_path / "built" / "three")
    models = tmp_path / "models"
    shutil.copytree(times(1, tmp_path / "built" / "one"), models / "scaled" / "1", symlinks=True)
    place = models / "scaled" / "2"

    with serving(models, "--watch", "0.1") as (server, address, grpc_address):
        first, newest = Client(address, "versions/1/"), Client(address, "")
        for _ in range(rounds):
            come_change_and_go(address, place, two, three, tmp_path / "aside")
        first.stop()
        newest.stop()
        assert ([], {1.0}) == (first.refusals, {*first.answers})
        assert ([], {1.0, 2.0, 3.0}) == (newest.refusals, {*newest.answers})
        client = tritonclient.grpc.InferenceServerClient(grpc_address)
        (entry,) = client.get_model_repository_index().models
        assert ("scaled", "1", "READY") == (entry.name, entry.version, entry.state)
        assert ["1"] == client.get_model_metadata("scaled").versions
        client.close()
        server.send_signal(signal.SIGTERM)
        assert 0 == server.wait(30)


def test_what_is_no_build_folder_is_refused(tmp_path: Path) -> None:
    ended = rankslice("serve", tmp_path)
    assert 1 == ended.code
    assert str(tmp_path) in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--http", "x"), "--http: is 'x'; expected [HOST:]PORT"),
        (("--tls-cert", "c.pem"), "--tls-key: is missing; TLS needs certificate and key"),
        (("--token-file", "none"), "none: no such file"),
    ],
)
def test_options_that_cannot_be_are_refused(
    folder: Path, options: tuple[str, ...], message: str
) -> None:
    ended = rankslice("serve", folder, *options)
    assert 1 == ended.code
    assert message in ended.err
