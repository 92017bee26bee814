"""The main program of a generated ``driver.py``."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from .errors import ElsewhereError, JobError
from .job import Job, load_job
from .options import parse_options
from .rank import run_rank, together
from .transport import Transport

__all__ = ["Rank", "Receive", "Segment", "Send", "main"]

_ABORT_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Receive:
    """A tensor that comes from another rank each frame."""

    tensor: str
    source: int
    channel: int


@dataclass(frozen=True, slots=True)
class Send:
    """A tensor that goes to another rank each frame."""

    tensor: str
    destination: int
    channel: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A sub-model, with what it takes in and gives out."""

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank does with each frame."""

    key: str
    host: str
    accelerator: str
    cores: tuple[int, ...]
    engine: str
    receives: tuple[Receive, ...]
    segments: tuple[Segment, ...]
    sends: tuple[Send, ...]


def main(driver: str, plan_sha256: str, ranks: dict[int, Rank]) -> int:
    """Run this process's rank; return the exit code.

    Args:
        driver: path of the driver; ``plan.json`` and the sub-models lie beside it.
        plan_sha256: hash of the ``plan.json`` from which the driver was generated.
        ranks: the driver's tables; they must say what the plan says.
    """
    options = parse_options()
    folder = Path(driver).resolve().parent
    transport: Transport | None = None
    try:
        from .mpi import MpiTransport

        transport = mpi = MpiTransport()
        job = together(mpi, lambda: _load_checked(folder, plan_sha256, ranks, mpi))
        run_rank(job, folder, options, mpi)
        mpi.close()
    except ElsewhereError:
        time.sleep(_ABORT_TIMEOUT_S)
        return 1
    except JobError as error:
        return _end(transport, str(error))
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
        return _end(transport, f"{type(error).__name__}: {error}")
    return 0


def _load_checked(
    folder: Path, plan_sha256: str, ranks: dict[int, Rank], transport: Transport
) -> Job:
    try:
        job = load_job(folder / "plan.json")
        check_tables(job, plan_sha256, ranks)
        if transport.size != len(job.ranks):
            raise JobError(
                f"the plan has {len(job.ranks)} ranks, but {transport.size} were started"
                f" (mpirun -n {len(job.ranks)})"
            )
    except JobError as error:
        key = ranks[transport.rank].key if transport.rank in ranks else "no part in the plan"
        place = f"rank {transport.rank} ({key} on {socket.gethostname()})"
        raise JobError(f"{place}: {error}") from None
    return job


def check_tables(job: Job, plan_sha256: str, ranks: dict[int, Rank]) -> None:
    """Raise :class:`JobError` unless the driver's tables say what the plan says."""
    if job.sha256 != plan_sha256:
        raise JobError("plan.json is not the one this driver was generated from; build again")
    for number, rank in enumerate(tables(job)):
        if ranks.get(number) != rank:
            raise JobError(
                f"driver.py and plan.json differ on rank {number}; plan.json decides, so"
                " change the mapping and build again"
            )


def tables(job: Job) -> list[Rank]:
    """Return the tables that belong to a plan."""
    return [
        Rank(
            key=spec.key,
            host=spec.host,
            accelerator=spec.accelerator,
            cores=spec.cores,
            engine=spec.engine,
            receives=tuple(
                Receive(c.tensor, c.source, c.number)
                for c in job.channels
                if c.destination == spec.rank
            ),
            segments=tuple(
                Segment(s.file, s.inputs, s.outputs) for s in job.segments_of(spec.rank)
            ),
            sends=tuple(
                Send(c.tensor, c.destination, c.number)
                for c in job.channels
                if c.source == spec.rank
            ),
        )
        for spec in job.ranks
    ]


def _end(transport: Transport | None, message: str) -> int:
    """Print the one message and end all ranks; abort can block, so end hard after a while."""
    print(f"rankslice: {message}", file=sys.stderr, flush=True)
    if transport is not None:
        timer = threading.Timer(_ABORT_TIMEOUT_S, os._exit, [1])
        timer.daemon = True
        timer.start()
        transport.abort()
    return 1
