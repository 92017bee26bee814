"""When a server does not answer, and what it says then, over either protocol."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from descriptors import none_left
from served import Doubling, Served, served
from tritonclient.utils import InferenceServerException
from waiting import until

from rankslice.framework.errors import RankSliceError
from rankslice.serve.access import Access, listen, parse_address, read_access
from rankslice.serve.models import Model, Models
from rankslice.serve.protocol.messages import MESSAGES, SERVICE

X = np.ones((2, 3), np.float32)


def ask_http(server: Served, headers: dict[str, str] | None = None, **parameters: int) -> Any:
    """Return status, headers and record of an answer."""
    connection = http.client.HTTPConnection(server.http, timeout=20)
    item = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": X.tolist()}
    body = json.dumps({"inputs": [item], "parameters": parameters})
    connection.request("POST", "/v2/models/double/infer", body, headers or {})
    answer = connection.getresponse()
    record = json.loads(answer.read())
    connection.close()
    return answer.status, answer.headers, record


def ask_grpc(
    server: Served,
    metadata: tuple[tuple[str, str], ...] = (),
    timeout: float | None = None,
) -> tuple[str, str]:
    """Return the status code and the message of an answer."""
    request = MESSAGES["ModelInferRequest"](model_name="double")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    tensor.contents.fp32_contents.extend(X.reshape(-1).tolist())
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES["ModelInferResponse"].FromString,
        )
        try:
            answer = call(request, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        assert [2.0] * 6 == list(answer.outputs[0].contents.fp32_contents)
        return "OK", ""


@contextmanager
def held(pipeline: Doubling, ask: Callable[[Served], Any]) -> Iterator[tuple[Served, Future[Any]]]:
    """Yield a server whose pipeline computes nothing yet, and the answer to a request."""
    with served(pipeline) as server, ThreadPoolExecutor(1) as pool:
        pipeline.hold()
        answer = pool.submit(ask, server)
        until(lambda: pipeline.kept == 1)
        yield server, answer


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    pipeline = Doubling(limit=2)
    with served(pipeline) as server, ThreadPoolExecutor(2) as pool:
        pipeline.hold()
        waiting = [pool.submit(ask_http, server) for _ in range(2)]
        until(lambda: pipeline.kept == 2)
        status, headers, record = ask_http(server)
        assert (429, "model double: 2 requests have no result yet") == (status, record["error"])
        assert int(headers["Retry-After"]) >= 1
        assert "RESOURCE_EXHAUSTED" == ask_grpc(server)[0]
        pipeline.release()
        assert [200, 200] == [answer.result()[0] for answer in waiting]


@pytest.mark.parametrize("state", ["starting", "closing"])
def test_a_model_that_is_not_ready_says_so(state: str) -> None:
    pipeline = Doubling(state=state)
    with served(pipeline) as server:
        for kind, address in ((tritonclient.http, server.http), (tritonclient.grpc, server.grpc)):
            client = kind.InferenceServerClient(address)
            assert client.is_server_live()
            assert not client.is_server_ready()
            assert not client.is_model_ready("double")
            client.close()
        assert 503 == ask_http(server)[0]
        assert "UNAVAILABLE" == ask_grpc(server)[0]


def test_a_failed_job_is_told_with_the_words_of_its_rank() -> None:
    pipeline = Doubling()
    with served(pipeline) as server:
        assert 200 == ask_http(server)[0]
        pipeline.fail("rank 1 (local_cpu1 on pc) was killed")
        expected = "model double: rank 1 (local_cpu1 on pc) was killed"
        status, _, record = ask_http(server)
        assert (503, expected) == (status, record["error"])
        assert ("UNAVAILABLE", expected) == ask_grpc(server)


def test_a_request_whose_values_an_engine_refuses_is_invalid_and_the_model_stays_ready() -> None:
    pipeline = Doubling(refuses=1.0)
    with served(pipeline) as server:
        message = "model double: rank 1: segment 0, frame 17: 1.0 is not allowed"
        status, _, record = ask_http(server)
        assert (400, {"error": message}) == (status, record)
        assert ("INVALID_ARGUMENT", message) == ask_grpc(server)
        assert next(iter(server.serving.models)).is_ready
        pipeline.refuses = None
        assert 200 == ask_http(server)[0]


def test_a_job_that_fails_tells_those_who_wait() -> None:
    pipeline = Doubling()
    with held(pipeline, ask_grpc) as (_, answer):
        pipeline.fail("rank 0 has died")
        pipeline.release()
        assert ("UNAVAILABLE", "model double: rank 0 has died") == answer.result()


def test_a_request_waits_no_longer_than_its_client() -> None:
    pipeline = Doubling()
    with held(pipeline, ask_http) as (server, first):
        status, _, record = ask_http(server, timeout=50_000)
        assert (504, "model double: no result within 0.05 s") == (status, record["error"])
        assert "DEADLINE_EXCEEDED" == ask_grpc(server, timeout=0.1)[0]
        until(lambda: pipeline.kept == 1)
        pipeline.release()
        assert 200 == first.result()[0]
    assert 1 == pipeline.computed


def test_a_client_that_goes_away_costs_nothing() -> None:
    pipeline = Doubling()
    with held(pipeline, ask_grpc) as (server, first):
        leaving = http.client.HTTPConnection(server.http)
        leaving.request(
            "POST",
            "/v2/models/double/infer",
            X.tobytes(),
            {"Inference-Header-Content-Length": "0"},
        )
        until(lambda: pipeline.kept == 2)
        leaving.close()
        until(lambda: pipeline.kept == 1)
        pipeline.release()
        assert ("OK", "") == first.result()
    assert 1 == pipeline.computed


def test_a_server_that_ends_answers_what_has_come_and_nothing_more() -> None:
    pipeline = Doubling()
    with held(pipeline, ask_http) as (server, first), ThreadPoolExecutor(1) as pool:
        draining = pool.submit(server.drain)
        until(lambda: ask_http(server)[0] == 503)
        assert not draining.done()
        pipeline.release()
        draining.result()
        assert 200 == first.result()[0]


def test_only_those_with_the_token_are_answered(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with served(Doubling(), access=read_access(file, None, None)) as server:
        assert 401 == ask_http(server)[0]
        assert 401 == ask_http(server, {"Authorization": "Bearer s3cre"})[0]
        assert 200 == ask_http(server, {"Authorization": "Bearer s3cret"})[0]
        assert "UNAUTHENTICATED" == ask_grpc(server)[0]
        assert ("OK", "") == ask_grpc(server, (("authorization", "Bearer s3cret"),))
        client = tritonclient.http.InferenceServerClient(server.http)
        assert client.is_server_ready()  # those who watch the server need no token
        assert not client.is_model_ready("double")
        client.close()


def test_a_connection_may_be_encrypted(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    line += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {cert}"
    try:
        subprocess.run(line.split(), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl on this machine")
    with served(Doubling(), access=read_access(None, cert, key)) as server:
        address = server.grpc.replace("127.0.0.1", "localhost")
        client = tritonclient.grpc.InferenceServerClient(
            address, ssl=True, root_certificates=str(cert)
        )
        assert client.is_server_ready()
        client.close()
        context = ssl.create_default_context(cafile=str(cert))
        port = int(server.http.rpartition(":")[2])
        connection = http.client.HTTPSConnection("localhost", port, context=context)
        connection.request("GET", "/v2/health/ready")
        assert 200 == connection.getresponse().status
        connection.close()


def test_the_metrics_count_what_came_and_why_it_was_refused() -> None:
    pipeline, began_s = Doubling(), time.monotonic()
    with served(pipeline) as server:
        ask_http(server)
        ask_grpc(server)
        ask_http(server, {"Content-Encoding": "gzip"})
        connection = http.client.HTTPConnection(server.http)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    answered = 'rankslice_requests_total{{model="double",outcome="answered",protocol="{}"}}'
    assert ["1.0", "1.0"] == [lines[answered.format(protocol)] for protocol in ("http", "grpc")]
    refused = 'rankslice_refusals_total{model="double",protocol="http",reason="encoding"}'
    assert "1.0" == lines[refused]
    assert "1.0" == lines['rankslice_request_seconds_count{model="double",protocol="grpc"}']
    for protocol in ("http", "grpc"):
        took_s = lines[f'rankslice_request_seconds_sum{{model="double",protocol="{protocol}"}}']
        assert 0 < float(took_s) < time.monotonic() - began_s
    gauges = {name: lines[f'rankslice_{name}{{model="double",version="1"}}'] for name in GAUGES}
    assert GAUGES == gauges
    frames_per_second = float(lines['rankslice_frames_per_second{model="double",version="1"}'])
    assert frames_per_second >= 2 / (time.monotonic() - began_s)
    assert "1.5" == lines['rankslice_rank_cpu_seconds_total{model="double",rank="0",version="1"}']
    assert "0.75" == lines['rankslice_rank_compute_share{model="double",rank="0",version="1"}']


GAUGES = {
    "ready": "1.0",
    "frames": "0.0",
    "frames_limit": "64.0",
    "restarts": "0.0",
}


def test_a_server_without_descriptors_says_so_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(Doubling()) as server, socket.socket() as early:
        assert 200 == ask_http(server)[0]
        host, _, port = server.http.rpartition(":")
        with none_left():
            early.connect((host, int(port)))
            until(lambda: bool(caplog.records))
            time.sleep(0.1)
        assert 200 == ask_http(server)[0]
    (error,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert "no connection can be accepted: Too many open files" in error.getMessage()


def test_models_of_one_name_cannot_be_served_together() -> None:
    with pytest.raises(RankSliceError, match="two build folders have a model of this name"):
        Models([Model(Doubling()), Model(Doubling())])


def test_an_address_that_is_taken_is_told() -> None:
    with (
        served(Doubling()) as server,
        pytest.raises(RankSliceError, match="Address already in use"),
    ):
        listen("--http", parse_address("--http", server.http))


@pytest.mark.parametrize("text", ["", "http", "1:2:x", "70000", "localhost:-1"])
def test_an_address_has_a_port(text: str) -> None:
    with pytest.raises(RankSliceError, match=r"expected \[HOST:\]PORT"):
        parse_address("--http", text)


@pytest.mark.parametrize("text", ["", "two words", "caf\u00e9"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(RankSliceError, match="is not a token"):
        read_access(file, None, None)


def test_without_a_token_anybody_may_ask() -> None:
    assert Access().admits(None)


def test_a_compressed_call_is_refused() -> None:
    with served(Doubling()) as server:
        client = tritonclient.grpc.InferenceServerClient(server.grpc)
        tensor = tritonclient.grpc.InferInput("x", [2, 3], "FP32")
        tensor.set_data_from_numpy(X)
        with pytest.raises(InferenceServerException):
            client.infer("double", [tensor], compression_algorithm="gzip")
        client.close()
        assert ("OK", "") == ask_grpc(server)
