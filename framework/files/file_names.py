"""File names made of names that users and models choose."""

from __future__ import annotations

import hashlib
import string

_KEPT = frozenset((string.ascii_letters + string.digits + "_-,@.").encode())
_MAX_LENGTH = 150
_SHORTENED = 100


def safe_file_name(name: str) -> str:
    """Return ``name`` as a file name of ASCII letters, digits and ``_ - , @ . %``.

    Different names give different file names, on case-sensitive file systems.
    What is not a letter, digit or one of ``_ - , @ .`` becomes the percent-encoding of its UTF-8
    bytes, and so does a dot or a dash at the start; the empty name becomes ``%``. A result of
    more than 150 characters is cut and ends in ``%-`` and a hash of the whole name. It contains
    no path separator and is neither empty nor hidden, so it stays inside its folder.
    """
    encoded = "".join(map(_encoded, name.encode("utf-8", "surrogatepass")))
    if encoded.startswith((".", "-")):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _MAX_LENGTH:
        return encoded or "%"
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:32]
    return f"{encoded[:_SHORTENED]}%-{digest}"


def _encoded(byte: int) -> str:
    return chr(byte) if byte in _KEPT else f"%{byte:02X}"
