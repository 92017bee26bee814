"""The protocol over gRPC."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from rankslice import __version__
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.serve.access import Access, Limits, read_pem
from rankslice.serve.log import log_request
from rankslice.serve.metrics import NO_MODEL, Metrics
from rankslice.serve.models import PLATFORM, Models
from rankslice.serve.protocol import rpc
from rankslice.serve.protocol.messages import MESSAGES, SERVICE, check_fields
from rankslice.serve.protocol.tensors import Reason, RefusalError, invalid

PROTOCOL = "grpc"
_Answer = Callable[[Any], Awaitable[Any]]


def _is_no_departure(record: logging.LogRecord) -> bool:
    """Tell whether grpc logs something else than that a client has gone before its answer."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_departure)


class GrpcServer:
    """Answers calls until it is told to end."""

    def __init__(
        self, address: str, models: Models, metrics: Metrics, access: Access, limits: Limits
    ) -> None:
        self._limits, self._metrics, self._access = limits, metrics, access
        largest = max(rpc.most_bytes(model.inputs) for model in models)
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.connections,
            options=[
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_metadata_size", limits.head_bytes),
                ("grpc.max_concurrent_streams", limits.connections),
                ("grpc.server_handshake_timeout_ms", int(1e3 * limits.patience_s)),
                ("grpc.so_reuseport", 0),
                # A message that nobody reads yet takes a window's 64 KiB, not a growing one's MiB.
                ("grpc.http2.bdp_probe", 0),
                # A message may not become larger than it was on its way.
                ("grpc.compression_enabled_algorithms_bitset", 1),
                ("grpc.per_message_decompression", 0),
            ],
        )
        self._largest, self._seconds = largest, limits.seconds_for(largest)
        self._under_way = BytesUnderWay(limits.held_bytes)
        answers = _Answers(models, metrics)
        # Whoever has no token calls the first two: their requests, which say nothing, are not read.
        calls: dict[str, tuple[str | None, _Answer]] = {
            "ServerLive": (None, answers.live),
            "ServerReady": (None, answers.ready),
            "ModelReady": ("ModelReadyRequest", answers.model_ready),
            "ServerMetadata": ("ServerMetadataRequest", answers.server),
            "ModelMetadata": ("ModelMetadataRequest", answers.model),
            "RepositoryIndex": ("RepositoryIndexRequest", answers.index),
            "ModelInfer": ("ModelInferRequest", answers.infer),
        }
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(
                self._handler(name, message and MESSAGES[message], answer),
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (message, answer) in calls.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            if access.cert is not None and access.key is not None:
                pair = (read_pem(access.key), read_pem(access.cert))
                credentials = grpc.ssl_server_credentials([pair])
                self.port = self._server.add_secure_port(address, credentials)
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            problem = "cannot be used; is the port taken, or the address not of this machine?"
            raise RankSliceError(Mistake(f"--grpc {address}", problem)) from None

    async def start(self) -> None:
        await self._server.start()

    async def end(self) -> None:
        """Finish the answers that are being written; return when all connections are closed."""
        await self._server.stop(self._limits.patience_s)

    def _handler(self, name: str, message: Any, answer: _Answer) -> Any:
        """Return what handles a call of this name; without a message, none is read.

        Its request is read like the first of a stream: gRPC reads any other one before it asks who
        is calling, and for as long as that takes.
        """

        async def handle(_: Any, context: Any) -> Any:
            began, status = time.monotonic(), "CANCELLED"
            content = b""
            try:
                if message is not None:
                    self._admit(context)
                    content = await self._received(context)
                answered = await answer(message and _parsed(message, content))
                status = "OK"
                return answered
            except RefusalError as error:
                status = error.reason.grpc
                if error.retry_after_s is not None:
                    context.set_trailing_metadata((("retry-after", str(error.retry_after_s)),))
                await context.abort(getattr(grpc.StatusCode, status), error.message)
            finally:
                self._under_way.give_back(len(content))
                path = f"/{SERVICE}/{name}"
                log_request(PROTOCOL, name, path, status, time.monotonic() - began)

        return handle

    def _admit(self, context: Any) -> None:
        """Raise :class:`RefusalError` if a call has no token, before its message is read."""
        if not self._access.admits(dict(context.invocation_metadata()).get("authorization")):
            expected = "expected the metadata authorization: Bearer TOKEN"
            error = RefusalError(Reason.UNAUTHORISED, expected)
            self._metrics.refused(NO_MODEL, PROTOCOL, error)
            raise error

    async def _received(self, context: Any) -> bytes:
        """Return the request of a call, which remains under way until its bytes are given back.

        Raises:
            RefusalError: it does not come within its time, or there is none.
        """

        async def read() -> Any:
            await self._under_way.take(self._largest)  # its size is not known before it is here
            content = None
            try:
                content = await context.read()
                return content
            finally:
                kept = len(content) if isinstance(content, bytes) else 0
                self._under_way.give_back(self._largest - kept)

        try:
            content = await asyncio.wait_for(read(), self._seconds)
        except asyncio.TimeoutError:
            late = f"no whole request within {self._seconds:.0f} s"
            raise RefusalError(Reason.SLOW, late) from None
        if not isinstance(content, bytes):  # the end of the stream
            raise invalid("the call has no request")
        return content


class _Answers:
    def __init__(self, models: Models, metrics: Metrics) -> None:
        self._models, self._metrics = models, metrics

    async def live(self, _: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def ready(self, _: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._models.are_ready)

    async def model_ready(self, request: Any) -> Any:
        model = self._models.named(request.name, request.version)
        return MESSAGES["ModelReadyResponse"](ready=model.is_ready)

    async def server(self, _: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](name=PLATFORM, version=__version__)

    async def model(self, request: Any) -> Any:
        model = self._models.named(request.name, request.version)
        versions = self._models.versions(model.name)
        return MESSAGES["ModelMetadataResponse"](**model.metadata(versions))

    async def index(self, request: Any) -> Any:
        models = self._models.index(only_ready=request.ready)
        return MESSAGES["RepositoryIndexResponse"](models=models)

    async def infer(self, request: Any) -> Any:
        with self._metrics.request(self._models.label(request.model_name), PROTOCOL):
            model = self._models.named(request.model_name, request.model_version)
            with model.held():
                model.check_ready()
                wanted = rpc.read_request(
                    request, model.inputs, model.outputs, takes_images=model.images is not None
                )
                results = await model.infer(wanted)
            return rpc.answer(model.name, model.version, wanted, results)


def _parsed(message: Any, content: bytes) -> Any:
    try:
        check_fields(message.DESCRIPTOR, memoryview(content))
        return message.FromString(content)
    except DecodeError:
        raise invalid("the request is not a message of the protocol") from None


class BytesUnderWay:
    """Bounds the bytes of requests that are being read or answered; one is always let in."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._changed = asyncio.Event()

    async def take(self, count: int) -> None:
        while self._held and self._held + count > self._most:
            self._changed.clear()
            await self._changed.wait()
        self._held += count

    def give_back(self, count: int) -> None:
        if count:
            self._held -= count
            self._changed.set()
