"""What a signal does to a run without a known end: it lets no further frame in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def drained_by_signals(drain: Callable[[str], None] | None) -> Iterator[list[str]]:
    """Call ``drain`` with the name of the first SIGINT or SIGTERM; the next one acts as before.

    Without ``drain`` so does the first one.

    Yields:
        A list that gets that name. In a thread other than the main one no signal comes here.
    """
    told: list[str] = []
    acts = drain is not None and threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS} if acts else {}
    before = {
        number: handler
        for number, handler in handlers.items()
        if handler not in (signal.SIG_IGN, None)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def begin(number: int, frame: FrameType | None) -> None:
        restore()
        told.append(signal.Signals(number).name)
        # Not here: this may have interrupted whoever holds a lock that drain takes.
        threading.Thread(target=drain, args=told, daemon=True).start()

    for number in before:
        signal.signal(number, begin)
    try:
        yield told
    finally:
        restore()
