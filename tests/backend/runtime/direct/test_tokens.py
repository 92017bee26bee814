"""Tokens through real pipes: their order, their room, and what threads do to them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.direct.tokens import ENDED, FREED, WRITTEN, Inbox, Outbox
from rankslice.backend.runtime.errors import JobError


def add(outbox: Outbox, entry: int, kind: int, channel: int, count: int) -> None:
    """Add a token, as a ring does whose counters are such."""
    counts = SimpleNamespace(written=count, freed=count, end=count if kind == ENDED else None)
    add = outbox.add_freed if kind == FREED else outbox.add_written
    add(counts, entry, channel)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def test_tokens_are_taken_as_they_were_added(inbox: Inbox) -> None:
    taken: list[tuple[str, int]] = []
    inbox.expect(4)
    inbox.handle(WRITTEN, 3, lambda count: taken.append(("written", count)))
    inbox.expect(1)
    inbox.handle(ENDED, 3, lambda count: taken.append(("ended", count)))
    inbox.expect(4)
    inbox.handle(FREED, 3, lambda count: taken.append(("freed", count)))
    assert not inbox.take()
    outbox = Outbox()
    for kind, count in ((WRITTEN, 1), (FREED, 1), (WRITTEN, 2), (ENDED, 2)):
        add(outbox, inbox.entry, kind, 3, count)
    assert not inbox.take()
    outbox.flush()
    assert inbox.take()
    assert [("written", 1), ("freed", 1), ("written", 2), ("ended", 2)] == taken


def test_more_tokens_than_one_write_has_stay_in_order(inbox: Inbox) -> None:
    taken: list[int] = []
    inbox.expect(1000)
    inbox.handle(WRITTEN, 1, taken.append)
    inbox.make_room()
    outbox = Outbox()
    for count in range(1000):
        add(outbox, inbox.entry, WRITTEN, 1, count)
    outbox.flush()
    while inbox.take():
        pass
    assert list(range(1000)) == taken


@given(st.integers(1, 5000), st.lists(st.integers(1, 128), min_size=1))
def test_all_tokens_that_may_be_under_way_have_room(most: int, sizes: list[int]) -> None:
    inbox = Inbox()
    taken: list[int] = []
    inbox.expect(most)
    inbox.handle(FREED, 1, taken.append)
    inbox.make_room()
    outbox = Outbox()
    sent = 0
    for _ in range(3):
        while sent - len(taken) < most:
            for _ in range(min(sizes[sent % len(sizes)], most - sent + len(taken))):
                sent += 1
                add(outbox, inbox.entry, FREED, 1, sent)
            outbox.flush()
        while inbox.take():
            pass
    assert list(range(1, sent + 1)) == taken
    inbox.close()


def test_a_pipe_that_the_system_refuses_is_an_error_with_a_remedy(inbox: Inbox) -> None:
    inbox.expect(1 << 30)
    inbox.handle(WRITTEN, 1, print)
    with pytest.raises(JobError, match="use a smaller --window, or --no-direct"):
        inbox.make_room()


def test_a_limit_of_open_files_is_an_error_with_a_remedy() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(JobError, match=r"no pipe for tokens .*ulimit -n"):
            Inbox()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_token_for_a_rank_that_has_died_goes_nowhere() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outbox = Outbox()
    add(outbox, writing, WRITTEN, 1, 1)
    outbox.flush()
    os.close(writing)


def test_nothing_is_sent_once_descriptors_are_closed(inbox: Inbox) -> None:
    outbox = Outbox()
    add(outbox, inbox.entry, WRITTEN, 1, 1)
    outbox.close()
    outbox.flush()
    assert not inbox.take()


def test_the_times_of_frames_are_told_and_no_others(inbox: Inbox) -> None:
    inbox.expect(1)
    inbox.handle(WRITTEN, 2, lambda count: None)
    inbox.expect(1)
    inbox.handle(FREED, 2, lambda count: None)
    stamps: list[tuple[int, bool]] = []
    inbox.on_stamp = lambda channel, stamp: stamps.append((channel, stamp > 0))
    outbox = Outbox()
    add(outbox, inbox.entry, WRITTEN, 2, 1)
    add(outbox, inbox.entry, FREED, 2, 1)
    outbox.flush()
    inbox.take()
    assert [(2, True)] == stamps
