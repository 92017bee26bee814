"""Where the results of a run go, and as what."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

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
    from numpy.typing import NDArray

    from rankslice.backend.runtime.sinks.results import Results

_OPTION = "--results"
_CHUNK = 1 << 20


def is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def check_results(path: Path) -> Path:
    """Check a path for results; return it as absolute path, or ``-`` for standard output.

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

    Returns ``None`` if they are in no file. If they cannot be brought there, they lie beside that
    place.
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
        if isinstance(error, RankSliceError):
            mistake = error.mistakes[0]
        else:
            mistake = Mistake(str(target), f"cannot be written: {error.strerror}")
        raise RankSliceError(mistake, f"the results are in {kept}") from None
    return target


def write_npz(results: Results, file: BinaryIO) -> None:
    """Write results as numpy's ``.npz``, piece by piece.

    A fixed output is an array [frames, ...] of its name. An open output ``boxes`` has an array for
    each frame: ``boxes/0``, ``boxes/1``, ... Memory holds the names of these, but no values. If
    frames have failed, ``frames`` has the numbers of the others.

    Raises:
        OSError: the file cannot be written.
        RankSliceError: two arrays would have the same name.
    """
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, values in _arrays(results):
            # Without a time of its own: the same results give the same file.
            member = zipfile.ZipInfo(f"{name}.npy")
            if member.filename in archive.NameToInfo:
                hint = "name a .bin file, which has room for both"
                raise RankSliceError(Mistake("--results", f"two outputs would be {name!r}", hint))
            with archive.open(member, "w", force_zip64=True) as out:
                _write_array(out, values)


def _arrays(results: Results) -> Iterator[tuple[str, NDArray[Any]]]:
    numbers = results.numbers
    if numbers != list(range(len(numbers))):
        yield "frames", results.records["frame"]
    for output, spec in enumerate(results.outputs):
        name = spec.name.replace("\0", "%00").encode(errors="backslashreplace").decode()
        if spec.is_open:
            for frame, values in zip(numbers, results.frames(output), strict=True):
                yield f"{name}/{frame}", values
        else:
            yield name, results.values(output)


def _write_array(out: IO[bytes], values: NDArray[Any]) -> None:
    import numpy as np

    head = {"fortran_order": False, "shape": values.shape}
    head["descr"] = np.lib.format.dtype_to_descr(values.dtype)
    np.lib.format.write_array_header_1_0(out, head)
    step = max(1, _CHUNK // max(1, values[:1].nbytes))
    for first in range(0, len(values), step):
        out.write(values[first : first + step].tobytes())
