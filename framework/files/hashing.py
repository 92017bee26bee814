"""Hashes of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
