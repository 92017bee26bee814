"""What libraries print while they load, without what nobody needs to know."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_INFO = b"INFO: "


@contextmanager
def without_info() -> Iterator[None]:
    """Drop the lines on standard error that begin with ``INFO:``; others are printed in the end.

    LiteRT prints such lines past Python, and has no setting for them.
    """
    _flush()
    kept, log = os.dup(2), os.memfd_create("rankslice-stderr")
    try:
        os.dup2(log, 2)
        yield
    finally:
        _flush()
        os.dup2(kept, 2)
        os.close(kept)
        with os.fdopen(log, "rb") as file:
            file.seek(0)
            lines = [line for line in file if not line.startswith(_INFO)]
        os.write(2, b"".join(lines))


def _flush() -> None:
    if sys.stderr is not None:  # it is where the program was started without one
        sys.stderr.flush()
