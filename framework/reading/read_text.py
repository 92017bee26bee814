"""The text of a file written by a user."""

from __future__ import annotations

import codecs
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.wording import bare

MAX_BYTES = 16 << 20
"""Default limit in bytes; the mapping and the plan of a model with 100,000 layers are smaller."""

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path, what: str, most: int = MAX_BYTES) -> str:
    """Return the text of an ordinary UTF-8 file, without a byte order mark."""
    expected = f"expected {what} file in UTF-8"
    content = read_ordinary(path, f"expected {what} file", most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = content.startswith(_WIDE)
        found = "the file is UTF-16 text" if wide else f"byte {error.start} is not UTF-8 text"
        raise RankSliceError(Mistake(bare(path.name), found, expected)) from None
