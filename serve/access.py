"""Who may ask a server, and how the way there is kept private."""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import open_ordinary

_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    token: str | None = None
    """What clients send as bearer token; ``None``: anybody may ask."""
    cert: Path | None = None
    """Certificate chain, PEM."""
    key: Path | None = None
    """Private key, PEM."""

    def admits(self, authorization: str | None) -> bool:
        """Tell whether the value of a request's header ``Authorization`` has the token."""
        if self.token is None:
            return True
        kind, _, token = (authorization or "").partition(" ")
        is_token = hmac.compare_digest(token.strip().encode(), self.token.encode())
        return kind.lower() == "bearer" and is_token


def read_access(token_file: Path | None, cert: Path | None, key: Path | None) -> Access:
    """Return who may ask, from the files of the command line.

    Raises:
        RankSliceError: a file is not there, or is not what it should be.
    """
    if (cert is None) != (key is None):
        lacking = "--tls-key" if key is None else "--tls-cert"
        raise RankSliceError(Mistake(lacking, "is missing", "TLS needs certificate and key"))
    if cert is not None and key is not None:
        _check_tls(cert, key)
    return Access(None if token_file is None else _token(token_file), cert, key)


def read_bytes(path: Path, expected: str) -> bytes:
    """Return the contents of a small file.

    Raises:
        RankSliceError: it cannot be read, or is too large.
    """
    with os.fdopen(open_ordinary(path, expected), "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise RankSliceError(Mistake(str(path), "is larger than 1 MiB", expected))
    return content


def _token(path: Path) -> str:
    expected = "expected a line with a token of printable ASCII characters without blanks"
    text = read_bytes(path, expected).decode("ascii", "replace").strip()
    if not text or not all("!" <= letter <= "~" for letter in text):
        raise RankSliceError(Mistake(str(path), "is not a token", expected))
    return text


def _check_tls(cert: Path, key: Path) -> None:
    import ssl

    for path in (cert, key):
        read_bytes(path, "expected a PEM file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        found = f"is not a certificate with the key {key}: {error}"
        raise RankSliceError(
            Mistake(str(cert), found, "expected PEM files without a password")
        ) from None


def _no_password() -> str:
    """Return nothing, instead of asking at the terminal."""
    return ""
