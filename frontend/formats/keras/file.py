"""What is in a Keras file, found out without TensorFlow, and without running anything of it."""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import listed, quoted
from rankslice.frontend.formats.keras.config import config_mistakes
from rankslice.frontend.formats.pieces import PositionedFile

MISSING = "pip install 'rankslice[keras]'"
"""What to do where TensorFlow, or h5py that comes with it, is missing."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_MEMBERS = frozenset({_CONFIG, "metadata.json", _WEIGHTS})
_MAX_CONFIG = 64 << 20
_MAX_EXPANSION = 50
"""How much longer than the file its content may be, beyond the first 64 MiB."""
_READING = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, KeyError, NotImplementedError, OSError, OverflowError, RuntimeError, ValueError),
)
"""What zipfile raises for damaged archives, and encrypted ones."""
_DAMAGED = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What h5py raises for damaged files, types that NumPy does not have among them."""


def check_keras_file(path: Path) -> None:
    """Raise unless a file is a whole Keras model of which nothing can run but Keras's layers.

    Raises:
        RankSliceError: it is not a Keras model, is damaged, unpacks to far more than it is, refers
            to other files, or names classes that are not Keras's. Or h5py is not installed.
    """
    with PositionedFile(path, "expected a Keras model file") as file:
        beginning = file.bytes_at(0, len(_HDF5))
    if path.suffix.lower() == ".keras":
        if not beginning.startswith(b"PK"):
            found = "is an HDF5 file" if beginning == _HDF5 else "is not a .keras archive"
            expected = "name it .h5" if beginning == _HDF5 else "expected one that Keras 3 saved"
            raise RankSliceError(Mistake(str(path), found, expected))
        config = _check_archive(path)
    else:
        if beginning != _HDF5:
            mistake = Mistake(str(path), "is not an HDF5 file", "expected a Keras model")
            raise RankSliceError(mistake)
        config = _check_hdf5(path)
    raise_mistakes(config_mistakes(str(path), config))


def _check_archive(path: Path) -> object:
    try:
        with zipfile.ZipFile(path) as archive:
            raise_mistakes(_member_mistakes(path, archive))
            text = archive.read(_CONFIG)
            config = _config(path, text)
            # A class that is refused is reported even if h5py is missing.
            raise_mistakes(config_mistakes(str(path), config))
            weights = archive.read(_WEIGHTS)
    except _READING as error:
        found = f"is a damaged .keras archive ({error})"
        raise RankSliceError(Mistake(str(path), found, "save the model again")) from None
    with _hdf5(path, io.BytesIO(weights)) as file:
        raise_mistakes(_content_mistakes(f"{path}: {_WEIGHTS}", file, len(weights)))
    return config


def _member_mistakes(path: Path, archive: zipfile.ZipFile) -> Iterator[Mistake]:
    members = archive.infolist()
    names = Counter(member.filename for member in members)
    where = str(path)
    for name in (_CONFIG, _WEIGHTS):
        if name not in names:
            yield Mistake(where, f"has no {name}", "expected a model saved with model.save")
    if strange := sorted(set(names) - _MEMBERS):
        yield Mistake(
            where, f"holds {listed(strange)}", "expected a model without files of its own"
        )
    if twice := sorted(name for name, count in names.items() if count > 1):
        yield Mistake(where, f"holds {listed(twice)} more than once")
    sizes = {member.filename: member.file_size for member in members}
    if sizes.get(_CONFIG, 0) > _MAX_CONFIG:
        yield Mistake(where, f"its {_CONFIG} unpacks to {sizes[_CONFIG]} bytes")
    if fault := _expansion(sum(sizes.values()), path.stat().st_size):
        yield Mistake(where, fault)


def _expansion(content: int, stored: int) -> str:
    if content <= _MAX_CONFIG + _MAX_EXPANSION * stored:
        return ""
    return f"unpacks to {content} bytes, from {stored}: too much for a model"


def _config(path: Path, text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RankSliceError(Mistake(str(path), "its configuration is not JSON")) from None


def _check_hdf5(path: Path) -> object:
    with _hdf5(path, path) as file:
        raise_mistakes(_content_mistakes(str(path), file, path.stat().st_size))
        try:
            text, has_weights = file.attrs.get("model_config"), "model_weights" in file
        except _DAMAGED as error:
            raise RankSliceError(_damage(str(path), error)) from None
        if isinstance(text, str | bytes) and has_weights:
            return _config(path, text)
    raise RankSliceError(
        Mistake(
            str(path),
            "holds weights without the model's layers" if text is None else "holds no weights",
            "expected a whole model, saved with model.save",
        )
    )


def _damage(where: str, error: Exception) -> Mistake:
    return Mistake(where, f"is damaged ({error})", "save the model again")


def _hdf5(path: Path, source: Path | BinaryIO) -> Any:
    try:
        import h5py
    except ImportError:
        raise RankSliceError(Mistake(str(path), "needs TensorFlow to be read", MISSING)) from None
    try:
        return h5py.File(source, "r")
    except _DAMAGED:
        found = "is not an HDF5 file, or is damaged"
        raise RankSliceError(Mistake(str(path), found, "save the model again")) from None


def _content_mistakes(where: str, file: Any, stored: int) -> Iterator[Mistake]:
    import h5py

    total = 0
    groups: list[tuple[str, Any]] = [("", file)]
    try:
        seen = {h5py.h5o.get_info(file.id).addr}
        while groups:
            above, group = groups.pop()
            for name in group:
                item_path, link = f"{above}/{name}", group.get(name, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    yield Mistake(where, f"{quoted(item_path)} is a link, to somewhere else")
                    continue
                item = group[name]
                address = h5py.h5o.get_info(item.id).addr
                if address in seen:
                    yield Mistake(where, f"{quoted(item_path)} is there by another name, too")
                    continue
                seen.add(address)
                if isinstance(item, h5py.Group):
                    groups.append((item_path, item))
                elif not isinstance(item, h5py.Dataset):
                    yield Mistake(where, f"{quoted(item_path)} is neither a group nor an array")
                elif item.external or item.is_virtual:
                    yield Mistake(where, f"the values of {quoted(item_path)} lie in another file")
                else:
                    total += item.nbytes
    except _DAMAGED as error:
        yield _damage(where, error)
    if fault := _expansion(total, stored):
        yield Mistake(where, fault)
