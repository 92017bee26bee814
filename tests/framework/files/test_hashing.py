"""Hashes of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rankslice.framework.files.hashing import FileHashes


def test_a_link_to_a_file_is_not_read_again(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"weights")
    link.hardlink_to(file)
    with FileHashes() as hashes:
        assert hashes.begin(file) is hashes.begin(link)
        assert hashlib.sha256(b"weights").hexdigest() == hashes.begin(link).result()
