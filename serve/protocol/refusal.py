"""Why a request is not answered, in the words of both protocols."""

from __future__ import annotations

from enum import Enum

from rankslice.framework.wording import printable

_MAX_CHARACTERS = 2000


class Reason(Enum):
    """A reason: its label in the metrics, the status of HTTP and the status code of gRPC."""

    INVALID = ("invalid", 400, "INVALID_ARGUMENT")
    UNAUTHORISED = ("unauthorised", 401, "UNAUTHENTICATED")
    UNKNOWN = ("unknown", 404, "NOT_FOUND")
    METHOD = ("method", 405, "UNIMPLEMENTED")
    SLOW = ("slow", 408, "DEADLINE_EXCEEDED")
    TOO_LARGE = ("too_large", 413, "RESOURCE_EXHAUSTED")
    ENCODING = ("encoding", 415, "UNIMPLEMENTED")
    QUEUE_FULL = ("queue_full", 429, "RESOURCE_EXHAUSTED")
    NOT_READY = ("not_ready", 503, "UNAVAILABLE")
    BUSY = ("busy", 503, "RESOURCE_EXHAUSTED")
    FAILED = ("failed", 503, "UNAVAILABLE")
    LATE = ("late", 504, "DEADLINE_EXCEEDED")

    def __init__(self, label: str, http: int, grpc: str) -> None:
        self.label = label
        self.http = http
        self.grpc = grpc


class RefusalError(Exception):
    def __init__(self, reason: Reason, message: str, retry_after_s: int | None = None) -> None:
        self.reason = reason
        self.message = printable(message[:_MAX_CHARACTERS])
        self.retry_after_s = retry_after_s
        super().__init__(self.message)


def invalid(message: str) -> RefusalError:
    return RefusalError(Reason.INVALID, message)
