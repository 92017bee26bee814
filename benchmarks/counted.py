"""How many system calls a rank makes, and how often it allocates memory, by frame.

The driver of a build folder is replaced by one that lets ``strace`` attach, or has a library of a
few lines counted in: it counts malloc, calloc and realloc, and Python leaves all of its objects to
these. Two runs of different length give the counts of a frame: start and end take no part.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "COUNTED_IN"
_WAY = "COUNTED_BY"

SYSTEM_CALLS, ALLOCATIONS = "system calls", "allocations"

_DRIVER = f"""
import os, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
place, way = os.environ.get({_FOLDER!r}), os.environ.get({_WAY!r})
if place and way == {SYSTEM_CALLS!r}:
    out = os.path.join(place, "calls." + os.environ["OMPI_COMM_WORLD_RANK"])
    with open(out + ".told", "w") as told:
        subprocess.Popen(["strace", "-f", "-c", "-o", out, "-p", str(os.getpid())], stderr=told)
    while "attached" not in open(out + ".told").read():
        time.sleep(0.01)
elif place:
    os.environ["LD_PRELOAD"] = os.path.join(place, "counted.so")
    os.environ["PYTHONMALLOC"] = "malloc"
driver = os.path.join(here, "counted_driver.py")
os.execv(sys.executable, [sys.executable, driver, *sys.argv[1:]])
"""

_LIBRARY = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static long unshared, *count = &unshared;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

__attribute__((constructor)) static void begin(void) {{
    char path[4096];
    snprintf(path, sizeof path, "%s/allocated.%s.%d", getenv("{_FOLDER}"),
             getenv("OMPI_COMM_WORLD_RANK"), getpid());
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096)) return;
    void *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) count = shared;
    close(file);
}}
static void note(void) {{ __atomic_fetch_add(count, 1, __ATOMIC_RELAXED); }}
void *malloc(size_t size) {{ note(); return __libc_malloc(size); }}
void *calloc(size_t number, size_t size) {{ note(); return __libc_calloc(number, size); }}
void *realloc(void *old, size_t size) {{ note(); return __libc_realloc(old, size); }}
"""


def let_count(folder: Path) -> None:
    """Put the counting driver into a build folder, before the folder's own."""
    driver = folder / "driver.py"
    driver.rename(folder / "counted_driver.py")
    driver.write_text(_DRIVER)


def why_not() -> str:
    """Say what is missing; empty: nothing."""
    missing = [name for name in ("strace", "cc") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not found" if missing else ""


def per_frame(run: Callable[[int], object], way: str, ranks: int, frames: int) -> list[float]:
    """Return the counts of a frame, by rank.

    Args:
        run: runs the job with a number of frames; its ranks inherit this environment.
        way: ``SYSTEM_CALLS`` or ``ALLOCATIONS``.
        ranks: how many the job has.
        frames: that one run has more than the other.
    """
    few, many = (_counts(run, way, ranks, each) for each in (frames // 10, frames + frames // 10))
    return [(b - a) / frames for a, b in zip(few, many, strict=True)]


def _counts(run: Callable[[int], object], way: str, ranks: int, frames: int) -> list[int]:
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place, _environment(place, way):
        if way == ALLOCATIONS:
            source = Path(place, "counted.c")
            source.write_text(_LIBRARY)
            library = source.with_suffix(".so")
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        run(frames)
        found = _calls if way == SYSTEM_CALLS else _allocated
        return [found(Path(place), rank) for rank in range(ranks)]


def _calls(place: Path, rank: int) -> int:
    table = (place / f"calls.{rank}").read_text().splitlines()
    (total,) = (line.split() for line in table if line.endswith("total"))
    return int(total[3])


def _allocated(place: Path, rank: int) -> int:
    # The rank's own process has allocated most; its guard inherits the library.
    files = place.glob(f"allocated.{rank}.*")
    return max(int.from_bytes(file.read_bytes()[:8], "little") for file in files)


@contextmanager
def _environment(place: str, way: str) -> Iterator[None]:
    os.environ |= {_FOLDER: place, _WAY: way}
    try:
        yield
    finally:
        del os.environ[_FOLDER], os.environ[_WAY]
