"""What a server logs: one object per line, which no client can forge, and nothing secret."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import grpc
import grpc.aio
import pytest
from served import Doubling, served

from rankslice.serve.access import Access
from rankslice.serve.log import log, start_log
from rankslice.serve.protocol.messages import SERVICE


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    root.handlers[:] = before


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_each_request_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Doubling(), access=Access("geheim")) as server:
        start_log(as_json=True)
        connection = http.client.HTTPConnection(server.http)
        path = '/v2/models/a%0A{"event": "failed"}'.replace(" ", "%20")
        connection.request("GET", f"{path}?q=geheim", headers={"Authorization": "Bearer geheim"})
        assert 404 == connection.getresponse().status
        connection.close()
        with (
            grpc.insecure_channel(server.grpc) as channel,
            pytest.raises(grpc.RpcError),
        ):
            channel.unary_unary(f"/{SERVICE}/ModelInfer")(
                b"wrong", metadata=(("authorization", "Bearer geheim"),)
            )
    events = lines(capsys)
    assert ["request"] * 2 == [event["event"] for event in events]
    by_protocol = {event["protocol"]: event for event in events}
    assert 404 == by_protocol["http"]["status"]
    assert "GET" == by_protocol["http"]["method"]
    assert '/v2/models/a\\n{"event": "failed"}' == by_protocol["http"]["path"]
    assert "INVALID_ARGUMENT" == by_protocol["grpc"]["status"]
    assert f"/{SERVICE}/ModelInfer" == by_protocol["grpc"]["path"]
    assert all(0 <= event["duration_ms"] < 10_000 for event in events)
    assert "geheim" not in json.dumps(events)


def test_libraries_log_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(as_json=True)
    try:
        raise KeyError("a bug")
    except KeyError:
        logging.getLogger("uvicorn.error").exception("in\nan application")
    (event,) = lines(capsys)
    assert ("uvicorn.error", "error") == (event["event"], event["level"])
    assert "KeyError: 'a bug'" in event["exception"]


@pytest.mark.parametrize(("error", "count"), [(grpc.aio.InternalError, 0), (KeyError, 1)])
def test_a_client_that_goes_before_its_answer_is_no_error(
    capsys: pytest.CaptureFixture[str], error: type[Exception], count: int
) -> None:
    import_module("rankslice.serve.grpc")
    start_log(as_json=True)
    try:
        raise error
    except error:
        logging.getLogger("grpc._cython.cygrpc").exception("raised in core")
    assert count == len(lines(capsys))


def test_people_are_told_of_what_goes_wrong_and_not_of_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start_log(as_json=False)
    log(logging.INFO, "request", "GET /v2: 200")
    log(logging.ERROR, "failed", "digits: rank 1\nwas killed", model="digits")
    assert "error: digits: rank 1\\nwas killed\n" == capsys.readouterr().err
