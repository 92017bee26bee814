"""Hashes of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["file_sha256"]

_BLOCK = 1 << 20


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal digits, reading it block by block."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
