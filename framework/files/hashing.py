"""Hashes of files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

_BLOCK = 1 << 18
"""Bytes: small enough to stay in a core's cache between reading and hashing."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal digits, reading it block by block."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


def joint_sha256(digests: Sequence[str]) -> str:
    """Return the digest of files of which each has one: its own, if there is a single file."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


class FileHashes:
    """SHA-256 of files, computed in threads while other work goes on: a context manager.

    A file is known by its inode, so links to it are not read again.
    """

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor()
        self._hashes: dict[tuple[int, int], Future[str]] = {}

    def __enter__(self) -> FileHashes:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, path: Path) -> Future[str]:
        status = path.stat()
        key = status.st_dev, status.st_ino
        if key not in self._hashes:
            self._hashes[key] = self._pool.submit(file_sha256, path)
        return self._hashes[key]
