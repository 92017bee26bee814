"""The protocol over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import time
from collections.abc import Awaitable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rankslice import __version__
from rankslice.serve.access import Access, Limits
from rankslice.serve.log import log_request
from rankslice.serve.metrics import CONTENT_TYPE, NO_MODEL, Metrics
from rankslice.serve.models import Model, Models
from rankslice.serve.protocol import rest
from rankslice.serve.protocol.tensors import Reason, RefusalError, Request as Asked, invalid
from rankslice.session.shared_options import is_number

PROTOCOL = "http"
EXTENSIONS = ("binary_tensor_data",)
_HEADER_LENGTH = "Inference-Header-Content-Length"
_LARGE_BYTES = 256 * 1024
"""JSON above this size is read in a thread, one request at a time; others are answered then."""
_IMAGE_BYTES = 16 << 20
"""Most bytes of an image file."""
_LARGE_NUMBERS = 10_000
"""An answer with more numbers is written in a thread."""
_OPEN_TO_ALL = ("/v2/health/live", "/v2/health/ready")


class HttpServer:
    """Answers requests until it is told to end."""

    def __init__(
        self,
        listener: socket.socket,
        models: Models,
        metrics: Metrics,
        access: Access,
        limits: Limits,
    ) -> None:
        self._listener = listener
        config = uvicorn.Config(
            make_app(models, metrics, access, limits),
            http=_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_graceful_shutdown=math.ceil(limits.patience_s),
            ssl_certfile=access.cert,
            ssl_keyfile=access.key,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve([self._listener]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Finish the answers that are being written; return when all connections are closed."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.shield(self._task)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol with time limits for clients, and a bound on their number."""
    silent: dict[Bounded, None] = {}
    """Connections on which no request has come, the oldest first."""

    class Bounded(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            silent[self] = None
            if len(self.connections) > limits.connections:
                # The one that has been silent for longest, which may be this one.
                next(iter(silent)).refuse(RefusalError(Reason.BUSY, "too many connections", 1))
            self._watch_client()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_client()

        def _watch_client(self) -> None:
            """Give the client some time for a request, if none is being answered."""
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if self.cycle is not None:
                silent.pop(self, None)
            if (is_answering or self.transport.is_closing()) and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            elif not is_answering and self._timer is None:
                self._timer = self.loop.call_later(limits.patience_s, self._end_waiting)

        def _end_waiting(self) -> None:
            self._timer = None
            if self.cycle is not None and self.cycle.response_complete:
                self.transport.abort()
            else:
                seconds = f"{limits.patience_s:g}"
                self.refuse(RefusalError(Reason.SLOW, f"no request within {seconds} s"))

        def refuse(self, error: RefusalError) -> None:
            answer = _refused(error)
            code, phrase = answer.status_code, HTTPStatus(answer.status_code).phrase.encode()
            head = [(b"connection", b"close"), *answer.raw_headers]
            start = h11.Response(status_code=code, headers=head, reason=phrase)
            with contextlib.suppress(h11.LocalProtocolError):
                for event in (start, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            silent.pop(self, None)
            self.transport.close()
            self._watch_writing()

        def send_400_response(self, msg: str) -> None:
            self.refuse(invalid("this is not an HTTP/1.1 request, or its header is too long"))

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_writing()

        def _watch_writing(self) -> None:
            """Give the client some time to read what is written."""
            if self._writing is None:
                seconds = limits.seconds_for(self.transport.get_write_buffer_size())
                self._writing = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._writing is not None and not self.transport.is_closing():
                self._writing.cancel()
                self._writing = None

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            silent.pop(self, None)
            for timer in (self._timer, self._writing):
                if timer is not None:
                    timer.cancel()

    return Bounded


def make_app(models: Models, metrics: Metrics, access: Access, limits: Limits) -> ASGIApp:
    answers = _Answers(models, metrics, limits)
    model = "/v2/models/{name}"
    version = f"{model}/versions/{{version}}"
    app = Starlette(
        routes=[
            Route("/v2/health/live", answers.live),
            Route("/v2/health/ready", answers.ready),
            Route("/v2", answers.server),
            *(Route(path, answers.model) for path in (model, version)),
            *(Route(f"{path}/ready", answers.model_ready) for path in (model, version)),
            *(Route(f"{path}/infer", answers.infer, methods=["POST"]) for path in (model, version)),
            Route("/v2/repository/index", answers.index, methods=["POST"]),
            Route("/metrics", answers.figures),
        ],
        exception_handlers={
            RefusalError: _refusal,
            HTTPException: _http_error,
            ClientDisconnect: _gone,
        },
    )
    return _Guarded(app, metrics, access)


class _Guarded:
    """The application, for those who have the token; all requests are logged."""

    def __init__(self, app: ASGIApp, metrics: Metrics, access: Access) -> None:
        self._app, self._metrics, self._access = app, metrics, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._admitted(scope)(scope, receive, note)
        finally:
            took = time.monotonic() - began
            log_request(PROTOCOL, scope["method"], scope["path"], status, took)

    def _admitted(self, scope: Scope) -> ASGIApp:
        token = Request(scope).headers.get("authorization")
        if scope["path"] in _OPEN_TO_ALL or self._access.admits(token):
            return self._app
        error = RefusalError(Reason.UNAUTHORISED, "expected the header Authorization: Bearer TOKEN")
        self._metrics.refused(NO_MODEL, PROTOCOL, error)
        return _refused(error)


class _Answers:
    def __init__(self, models: Models, metrics: Metrics, limits: Limits) -> None:
        self._models, self._metrics, self._limits = models, metrics, limits
        self._held_bytes = 0
        self._reading = asyncio.Lock()

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        if self._models.are_ready:
            return Response()
        waits = [model.name for model in self._models if not model.is_ready]
        return _refused(RefusalError(Reason.NOT_READY, f"not ready: {', '.join(waits)}"))

    async def server(self, request: Request) -> Response:
        return _json({"name": "rankslice", "version": __version__, "extensions": EXTENSIONS})

    async def model(self, request: Request) -> Response:
        model = self._model_of(request)
        return _json(model.metadata(self._models.versions(model.name)))

    async def index(self, request: Request) -> Response:
        body = bytearray()
        try:
            await self._read(request, self._limits.head_bytes, body)
            only_ready = rest.read_index_request(bytes(body))
        finally:
            self._held_bytes -= len(body)
        return Response(
            json.dumps(self._models.index(only_ready=only_ready)), media_type="application/json"
        )

    async def model_ready(self, request: Request) -> Response:
        self._model_of(request).check_ready()
        return Response()

    async def figures(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def infer(self, request: Request) -> Response:
        name = self._models.label(request.path_params["name"])
        with self._metrics.request(name, PROTOCOL):
            model = self._model_of(request)
            with model.held():
                return await self._infer(request, model)

    async def _infer(self, request: Request, model: Model) -> Response:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RefusalError(Reason.ENCODING, "Content-Encoding: expected no compression")
        header_bytes = _number(request.headers, _HEADER_LENGTH)
        limit = rest.most_bytes(model.inputs, is_binary=header_bytes is not None)
        is_image = request.headers.get("content-type", "").lower().startswith("image/")
        if is_image:
            if model.images is None:
                raise RefusalError(Reason.ENCODING, f"model {model.title} takes no images")
            limit = _IMAGE_BYTES
        body = bytearray()
        try:
            await self._read(request, limit, body)
            model.check_ready()
            arguments = (bytes(body), header_bytes, model.inputs, model.outputs)
            if is_image:
                asked = Asked({model.inputs[0].name: bytes(body)}, tuple(model.outputs))
            elif (len(body) if header_bytes is None else header_bytes) > _LARGE_BYTES:
                async with self._reading:
                    asked = await asyncio.to_thread(rest.read_request, *arguments)
            else:
                asked = rest.read_request(*arguments)
            results = await _unless_gone(request, model.infer(asked))
        finally:
            self._held_bytes -= len(body)
        answer = (model.name, model.version, asked, results)
        numbers = sum(results[spec.name].size for spec in asked.outputs)
        if numbers > _LARGE_NUMBERS and len(asked.as_bytes) < len(asked.outputs):
            content, length = await asyncio.to_thread(rest.write_answer, *answer)
        else:
            content, length = rest.write_answer(*answer)
        if length is None:
            return Response(content, media_type="application/json")
        headers = {_HEADER_LENGTH: str(length)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    async def _read(self, request: Request, limit: int, body: bytearray) -> None:
        """Read a request's body.

        Raises:
            RefusalError: it is larger than ``limit``, comes too slowly, or others hold the memory.
        """
        declared = _number(request.headers, "content-length")
        too_large = f"the request is larger than {limit} bytes, the most for this model"
        if declared is not None and declared > limit:
            raise RefusalError(Reason.TOO_LARGE, too_large)
        seconds = self._limits.seconds_for(limit if declared is None else declared)
        ends = time.monotonic() + seconds
        pieces = request.stream().__aiter__()
        while True:
            try:
                piece = await asyncio.wait_for(pieces.__anext__(), ends - time.monotonic())
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError:
                message = f"no whole request within {seconds:.0f} s"
                raise RefusalError(Reason.SLOW, message) from None
            if len(body) + len(piece) > limit:
                raise RefusalError(Reason.TOO_LARGE, too_large)
            is_only_one = self._held_bytes == len(body)
            if not is_only_one and self._held_bytes + len(piece) > self._limits.held_bytes:
                raise RefusalError(Reason.BUSY, "too many large requests at a time", 1)
            body += piece
            self._held_bytes += len(piece)

    def _model_of(self, request: Request) -> Model:
        return self._models.named(
            request.path_params["name"], request.path_params.get("version", "")
        )


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """Return the result of work, which is cancelled if the client goes away.

    Raises:
        ClientDisconnect: it has gone.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # after the body: the disconnect alone
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            task.cancel()


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not is_number(text):
        raise invalid(f"{name}: expected a number")
    return int(text)


def _json(record: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(record), status, media_type="application/json")


def _refused(error: RefusalError) -> Response:
    answer = _json({"error": error.message}, error.reason.http)
    if error.retry_after_s is not None:
        answer.headers["Retry-After"] = str(error.retry_after_s)
    if error.reason is Reason.UNAUTHORISED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return _refused(error)


async def _gone(request: Request, error: Exception) -> Response:
    """Answer a client that reads no answer any more."""
    return Response(status_code=Reason.SLOW.http)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == Reason.UNKNOWN.http:
        return _refused(RefusalError(Reason.UNKNOWN, f"there is no such path: {request.url.path}"))
    problem = f"the method {request.method} is not allowed for {request.url.path}"
    return _refused(RefusalError(Reason.METHOD, problem))
