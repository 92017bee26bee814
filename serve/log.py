"""What a server says on standard error while it serves: a line per event."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import on_one_line
from rankslice.views.terminal import print_line, talk

_LOGGER = logging.getLogger("rankslice.serve")
_LABELS = {logging.WARNING: "warning", logging.ERROR: "error", logging.CRITICAL: "error"}
_ONLY_IN_JSON = ("request", "ready")
"""Events too frequent for people, or told on standard output."""


def start_log(*, as_json: bool) -> None:
    """Write all events, and what libraries log, to standard error from now on.

    ``as_json``: an object per line; otherwise texts for people, behind ``error:`` or ``warning:``.
    """
    handler = _JsonHandler() if as_json else _HumanHandler()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _LOGGER.setLevel(logging.INFO)


def log(level: int, event: str, message: str, **fields: Any) -> None:
    """Log an event of one word, its message for people, and JSON values for programs."""
    _LOGGER.log(level, "%s", message, extra={"event": event, "fields": fields})


def log_request(protocol: str, method: str, path: str, status: int | str, seconds: float) -> None:
    """Log a request that has ended, so many seconds after its head."""
    if not _LOGGER.isEnabledFor(logging.INFO):
        return
    path = on_one_line(path)
    log(
        logging.INFO,
        "request",
        f"{method} {path}: {status}",
        protocol=protocol,
        method=method,
        path=path,
        status=status,
        duration_ms=round(1e3 * seconds, 3),
    )


@contextmanager
def mistakes_logged(*, as_json: bool) -> Iterator[None]:
    """Log the mistakes that end the command in the form of the log, and end it with code 1."""
    try:
        yield
    except RankSliceError as error:
        if not as_json:
            raise
        for mistake in error.mistakes:
            log(logging.ERROR, "error", str(mistake))
        raise SystemExit(1) from None


class _HumanHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", "") in _ONLY_IN_JSON:
            return
        print_line(talk, on_one_line(record.getMessage()), _LABELS.get(record.levelno, ""))
        for line in _exception_of(record).splitlines():
            print_line(talk, on_one_line(line))


class _JsonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        line = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if exception := _exception_of(record):
            line["exception"] = exception
        print(json.dumps(line), file=sys.stderr, flush=True)


def _exception_of(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
