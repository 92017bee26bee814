"""The metadata of an ONNX file: pairs of texts that its maker has left."""

from __future__ import annotations

from pathlib import Path

from rankslice.frontend.formats.onnx.wire import BYTES, WireFile

_METADATA, _KEY, _VALUE = 14, 1, 2
_LONGEST = 1 << 20
"""Of a pair, in bytes; longer ones are passed over."""


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of an ONNX file; of a key that comes again, the last value."""
    found = {}
    with WireFile(path) as file:
        for pair in file.fields(0, file.size):
            if (pair.number, pair.wire) != (_METADATA, BYTES) or pair.end - pair.body > _LONGEST:
                continue
            texts = {
                each.number: file.read(each.body, each.end).decode(errors="replace")
                for each in file.fields(pair.body, pair.end)
                if each.wire == BYTES
            }
            found[texts.get(_KEY, "")] = texts.get(_VALUE, "")
    return found
