"""Memory that one rank writes and the other ranks of its board read.

It is a file without a name, so nothing is left behind however the ranks end, and it needs no
``/dev/shm``. Its descriptor is handed over (:mod:`.neighbours`). Seals make sure of what its
readers rely on: it never shrinks under them, which would kill them when they read; and only its
maker writes it, unless an engine in a process of its own does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job.wording import megabytes_text
from ..system.processes import free_bytes

_SEAL_FUTURE_WRITE = 0x10
"""Refuses all writing but through mappings that exist; ``fcntl`` has no name for it."""

_MORE_MEMORY = (
    "give the board or the container more memory, or run with a smaller --window; the slots take as"
    " much with --no-direct"
)
_REMEDIES = {
    errno.ENOMEM: _MORE_MEMORY,
    errno.ENOSPC: _MORE_MEMORY,
    errno.EFBIG: "raise the limit of the size of files (ulimit -f), or run with --no-direct",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or run with --no-direct",
}


class Memory(NamedTuple):
    """Memory that several processes have mapped, as one of them sees it."""

    descriptor: int
    """For handing it over; its owner closes it."""
    content: NDArray[np.uint8]
    """Its bytes, writable or not; the array keeps it mapped."""

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Find where in this memory an array begins; ``None``: it is not in it."""
        offset = array.ctypes.data - self.content.ctypes.data
        return offset if 0 <= offset <= self.content.nbytes - array.nbytes else None


def make_memory(size: int, *, others_write: bool = False) -> Memory:
    """Allocate memory (all zero, writable), so that no later access can fail.

    The descriptor is the caller's to close. ``others_write``: another process may map it to write.

    Raises:
        JobError: there is not so much memory, or the kernel refuses it.
    """
    descriptor = -1
    try:
        available = free_bytes()
        if available is not None and size > available:
            # The kernel would grant it, and then end processes to find it.
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        descriptor = os.memfd_create("rankslice-rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.posix_fallocate(descriptor, 0, size)
        mapping = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        if not others_write:
            with contextlib.suppress(OSError):  # before Linux 5.1; readers map it read-only anyway
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        number = error.errno if isinstance(error, OSError) else errno.ENOMEM
        remedy = _REMEDIES.get(number or 0, "run with --no-direct")
        raise JobError(
            f"no {megabytes_text(size, 1)} for tensors that other ranks of this board read"
            f" ({os.strerror(number or 0)}): {remedy}"
        ) from None
    return Memory(descriptor, np.frombuffer(mapping, np.uint8))


def map_memory(descriptor: int, size: int, *, writable: bool = False) -> NDArray[np.uint8]:
    """Map the first ``size`` bytes of memory that another process has made.

    The array keeps them mapped. The descriptor stays the caller's to close. ``writable``: its maker
    must allow it.

    Raises:
        JobError: it is smaller, could become smaller, or cannot be mapped.
    """
    try:
        # In this order: once it is sealed, its size is its size for good.
        if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise JobError("the memory of another rank is not sealed: its size could change")
        available = os.fstat(descriptor).st_size
        if not 0 < size <= available:
            raise JobError(
                f"the memory of another rank has {available} bytes, expected at least"
                f" {max(size, 1)}"
            )
        rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        mapping = mmap.mmap(
            descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=rights
        )
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "run with --no-direct")
        raise JobError(
            f"{megabytes_text(size, 1)} of another rank's memory cannot be mapped"
            f" ({error.strerror}): {remedy}"
        ) from None
    return np.frombuffer(mapping, np.uint8)
