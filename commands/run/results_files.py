"""Where the results of a run go, and as what."""

from __future__ import annotations

import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import (
    NPZ,
    RESULTS,
    STDOUT,
    check_output,
    is_null,
    whole_file,
)

if TYPE_CHECKING:
    from rankslice.backend.runtime.sinks.results import Results

_OPTION = "--results"
_CHUNK = 1 << 20
_MOMENT = (1980, 1, 1, 0, 0, 0)
"""Of all members: the same results give the same file."""


def is_npz(path: Path) -> bool:
    """Return whether results of this name are written for ``numpy.load``."""
    return path.suffix.lower() == ".npz"


def check_results(path: Path) -> Path:
    """Return where results go: the absolute path, or ``-`` for standard output.

    Raises:
        RankSliceError: no file can be made there, what is there is no results file, or the name
            tells no format.
    """
    checked = check_output(path, _OPTION, NPZ if is_npz(path) else RESULTS)
    if checked == STDOUT:
        return STDOUT
    if not is_null(path) and path.suffix.lower() not in (".bin", ".npz"):
        expected = (
            "expected a name that ends in .npz (for numpy.load) or .bin (RankSlice's own format)"
        )
        raise RankSliceError(Mistake(str(path), "does not name a format of results", expected))
    return checked.parent.resolve() / checked.name


def move_results(written: Path, target: Path) -> Path | None:
    """Bring results, as a job has written them, to where :func:`check_results` allowed them.

    Args:
        written: the job's file, in the folder of its run.
        target: where they go.

    Returns:
        Where they are; ``None``: in no file.

    Raises:
        RankSliceError: they could not be brought there, and lie beside that place.
    """
    if target == STDOUT:
        sys.stdout.flush()
        with written.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        return None
    if is_null(target):
        return None
    try:
        check_output(target, _OPTION, NPZ if is_npz(target) else RESULTS)
        if is_npz(target):
            from rankslice.backend.runtime.sinks.results import read_results

            with whole_file(target) as npz:
                write_npz(read_results(written), npz)
        else:
            with suppress(FileNotFoundError):
                written.chmod(stat.S_IMODE(target.stat().st_mode))
            written.replace(target)
    except (OSError, RankSliceError) as error:
        kept = written.parent.with_name(f"{target.stem}-{written.parent.name[-8:]}.bin")
        written.replace(kept)
        raise RankSliceError(_found(target, error), f"the results are in {kept}") from None
    return target


def _found(target: Path, error: OSError | RankSliceError) -> Mistake | str:
    if isinstance(error, RankSliceError):
        return error.mistakes[0]
    return Mistake(str(target), f"cannot be written: {error.strerror}")


def write_npz(results: Results, file: BinaryIO) -> None:
    """Write results as numpy's ``.npz``: arrays [frames, ...] by the names of the outputs.

    They are copied in pieces, so memory does not grow with them.

    Raises:
        OSError: the file cannot be written.
    """
    import zipfile

    import numpy as np

    with zipfile.ZipFile(file, "w") as archive:
        for number, spec in enumerate(results.outputs):
            dtype, shape = spec.storage
            name = spec.name.replace("\0", "%00").encode(errors="backslashreplace").decode()
            member = zipfile.ZipInfo(f"{name}.npy", _MOMENT)
            with archive.open(member, "w", force_zip64=True) as out:
                head = {"fortran_order": False, "shape": (len(results), *shape)}
                head["descr"] = np.lib.format.dtype_to_descr(dtype)
                np.lib.format.write_array_header_1_0(out, head)
                values = results.records[f"output_{number}"]
                step = max(1, _CHUNK // max(1, spec.nbytes))
                for first in range(0, len(results), step):
                    out.write(values[first : first + step].tobytes())
