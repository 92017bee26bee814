"""A SavedModel folder: which one it is, and its conversion to a ``.tflite`` file."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rankslice.framework.engine_process import answer_of
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.pieces import PositionedFile

GRAPH = "saved_model.pb"
_PROCESS = "rankslice.frontend.formats.saved_model.conversion_process"


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """What TensorFlow has made of a model."""

    source: Path
    file: Path
    """The ``.tflite`` file. It is removed when this process ends."""
    details: str = ""
    """What was converted, and by which TensorFlow, if it is of interest."""

    @property
    def notice(self) -> str:
        details = f" ({self.details})" if self.details else ""
        what = f"{self.source} is converted to {self.file.suffix}{details}"
        return f"{what}: the layers are those of that file"


def is_saved_model(path: Path) -> bool:
    with suppress(OSError):  # of a name that is too long, say
        return (path / GRAPH).is_file()
    return False


def convert_saved_model(folder: Path, signature: str = "") -> ConvertedModel:
    """Return a SavedModel as a ``.tflite`` file; one that was converted before is not again.

    Args:
        signature: empty for ``serving_default``, or the only one.

    Raises:
        RankSliceError: TensorFlow is not installed, or cannot convert the model; files lie outside
            of the folder; the model would run code, or read or write other files.
    """
    from rankslice.frontend.formats.keras.file import MISSING  # loads another format's package

    if find_spec("tensorflow") is None:
        raise RankSliceError(Mistake(str(folder), "needs TensorFlow to be converted", MISSING))
    return _converted(folder, signature, _sha256_of_files(folder))


def _sha256_of_files(folder: Path) -> str:
    """Return a hash over the names and contents of all files.

    Raises:
        RankSliceError: one is a link, or no ordinary file.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found = "is a link, and files elsewhere are not read"
            raise RankSliceError(Mistake(str(path), found, "copy the folder with: cp -rL"))
        if not path.is_dir():
            with PositionedFile(path, "expected a file of a SavedModel"):
                digest.update(f"{path.relative_to(folder)}\0{file_sha256(path)}".encode())
    return digest.hexdigest()


@cache
def _converted(folder: Path, signature: str, sha256: str) -> ConvertedModel:
    place = folder_until_exit()
    file = place / f"{folder.resolve().name}.tflite"
    arguments = (str(folder), signature, str(file))
    answer, failure = answer_of(_PROCESS, arguments, place, "TensorFlow")
    if answer is None:
        raise RankSliceError(Mistake(str(folder), failure))
    if "mistake" in answer:
        raise RankSliceError(Mistake(str(folder), *answer["mistake"]))
    details = f"signature {quoted(answer['signature'])}, by TensorFlow {answer['version']}"
    return ConvertedModel(folder, file, details)


def folder_until_exit() -> Path:
    """Return a new folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankslice"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
