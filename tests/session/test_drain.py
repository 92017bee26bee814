"""What signals do to a run without a known end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rankslice.session.connection import drained_by_signals


class Told(Exception):  # noqa: N818
    """The handler that was there before."""


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


@pytest.fixture
def handler() -> Iterator[None]:
    def tell(number: int, frame: object) -> None:
        raise Told

    before = signal.signal(signal.SIGTERM, tell)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_the_second_acts_as_before(first: signal.Signals) -> None:
    drained = threading.Event()
    names: list[str] = []

    def drain(name: str) -> None:
        names.append(name)
        drained.set()

    with drained_by_signals(drain) as signals:
        os.kill(os.getpid(), first)
        assert drained.wait(10)
        with pytest.raises(Told):
            terminate()
    assert [first.name] == names == signals


@pytest.mark.usefixtures("handler")
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with drained_by_signals(lambda name: None) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.SIG_IGN is signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [] == signals


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("is_endless", [True, False])
def test_afterwards_signals_act_as_before(is_endless: bool) -> None:
    with drained_by_signals((lambda name: None) if is_endless else None):
        pass
    with pytest.raises(Told):
        terminate()
