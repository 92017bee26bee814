"""Memory that ranks of one board share: who may write it, and what is refused."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from board_ranks import open_descriptors

from rankslice.backend.runtime.direct.memory import make_memory, map_memory
from rankslice.backend.runtime.errors import JobError

SIZE = 100_000
HAS_FUTURE_WRITE = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (5, 1)


@pytest.fixture
def descriptor() -> Iterator[int]:
    """Memory without seals."""
    made = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(made, SIZE)
    yield made
    os.close(made)


def test_what_the_maker_writes_others_read() -> None:
    made, written = make_memory(SIZE)
    read = map_memory(made, SIZE)
    assert [0, 0] == [written.sum(), read.sum()]
    written[:] = np.arange(SIZE) % 251
    assert np.array_equal(written, read)
    os.close(made)


def test_arrays_outlive_the_descriptor_and_each_other() -> None:
    before = open_descriptors()
    made, written = make_memory(SIZE)
    written[7] = 5
    read = map_memory(made, SIZE)[5:]
    os.close(made)
    del written
    assert 5 == read[2]
    del read
    assert before == open_descriptors()


def test_nobody_changes_the_size() -> None:
    made, _ = make_memory(SIZE)
    for size in (SIZE - 5000, SIZE + 5000):
        with pytest.raises(PermissionError):
            os.ftruncate(made, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(made)


@pytest.mark.skipif(not HAS_FUTURE_WRITE, reason="needs the seal of Linux 5.1")
def test_readers_cannot_write() -> None:
    made, written = make_memory(SIZE)
    with pytest.raises(PermissionError):
        mmap.mmap(made, SIZE)
    with pytest.raises(PermissionError):
        os.pwrite(made, b"x", 0)
    with pytest.raises(ValueError, match="read-only"):
        map_memory(made, SIZE)[0] = 1
    written[0] = 1
    os.close(made)


def test_another_process_may_write_if_the_maker_says_so() -> None:
    made, read = make_memory(SIZE, others_write=True)
    map_memory(made, SIZE, writable=True)[3] = 9
    assert 9 == read[3]
    os.close(made)


def test_an_array_is_found_in_the_memory_in_which_it_is() -> None:
    one, other = make_memory(SIZE), make_memory(SIZE)
    assert [0, 64, SIZE - 5] == [one.offset_of(one.content[n:]) for n in (0, 64, SIZE - 5)]
    assert [None, None] == [one.offset_of(array) for array in (other.content, np.zeros(4))]
    for memory in (one, other):
        os.close(memory.descriptor)


def test_its_pages_are_there_before_they_are_used() -> None:
    made, written = make_memory(16 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    written[:: mmap.PAGESIZE] = 1
    assert len(written) // mmap.PAGESIZE // 10 > (
        resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    )
    os.close(made)


def test_memory_that_is_too_small_is_not_mapped() -> None:
    made, _ = make_memory(SIZE)
    for size in (SIZE + 1, 1 << 70):
        with pytest.raises(JobError, match=f"has {SIZE} bytes, expected at least {size}"):
            map_memory(made, size)
    with pytest.raises(JobError, match="expected at least 1"):
        map_memory(made, 0)
    os.close(made)


def test_memory_that_could_shrink_is_not_mapped(descriptor: int) -> None:
    with pytest.raises(JobError, match="not sealed"):
        map_memory(descriptor, SIZE)


def test_a_file_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    reason = "Invalid argument|not sealed"  # files of a tmpfs can have seals
    with (tmp_path / "file").open("rb") as file, pytest.raises(JobError, match=reason):
        map_memory(file.fileno(), SIZE)


@pytest.mark.parametrize("size", [1 << 50, 1 << 70])
def test_more_than_there_is_says_how_much_and_what_helps(size: int) -> None:
    before = open_descriptors()
    with pytest.raises(JobError, match=r"no 1,.* MB .*memory.* smaller --window"):
        make_memory(size)
    assert before == open_descriptors()


def test_a_limit_of_the_system_is_named() -> None:
    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, hard))
    try:
        with pytest.raises(JobError, match=r"no 0\.1 MB .*File too large.*ulimit -f"):
            make_memory(SIZE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert before == open_descriptors()
