"""The main program of a generated ``driver.py``: one process, one rank, one way to end."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from .engines import engine_settings, prepare_engine
from .errors import ElsewhereError, JobError, NeighbourDiedError, reason_of
from .faults.pages import DONE, FAILED, STOPPED, StatusPage
from .faults.watchdog import not_started, say, start_watchdog
from .figures.events import EventRing, open_ring
from .figures.rank_usage import helper_processes
from .job import Job, Rank
from .job.check import sound
from .options import RunOptions, parse_options
from .pipeline.collectives import run_on_all
from .pipeline.rank import run_rank
from .process_setup import start_again_with
from .summary.by_hand import print_summary
from .transport import (
    MpiTransport,
    check_library,
    check_room,
    library_version,
    prefer,
)

_START_TIMEOUT_S = 120.0
_ABORT_TIMEOUT_S = 3
"""Aborting can block or miss a board, so the rank ends itself after this time."""
_DEATH_REPORT_S = 0.5
"""How long a failed rank needs to end the others."""
_FINALIZE_TIMEOUT_S = 60
_OPEN_FILES = 64
"""What a rank may need by itself; 43 in all were seen with three ranks."""
_OPEN_FILES_OF_A_RANK = 8
"""What it may need for each rank: of its board, or of another one."""


def main(job: Job) -> int:
    """Run this process's rank of the driver's job; return the exit code.

    The sub-models lie in a folder beside the driver, which is the program that was started.
    """
    driver = Path(getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0])
    number = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    rank, refusal = None, ""
    try:
        job = sound(job, driver.name)
        rank = job.ranks[number] if number < len(job.ranks) else None
    except JobError as error:
        refusal = str(error)
    start_again_with(dict(rank.environment) if rank else {})
    process = _Process(number, rank, parse_options())
    try:
        if refusal:
            process.refuse(refusal)
        process.run(job, driver.resolve().parent)
    except ElsewhereError:
        return process.wait_for_end()
    except NeighbourDiedError as error:
        return process.outlive(str(error))
    except JobError as error:
        return process.fail(str(error))
    except KeyboardInterrupt:
        process.stop()
    except BaseException as error:
        traceback.print_exc()
        return process.fail(f"{process.name}: {type(error).__name__}: {error}")
    return 0


class _Process:
    """A process around the rank it runs: its watchdog, deadlines and signals."""

    def __init__(self, number: int, rank: Rank | None, options: RunOptions) -> None:
        self._options = options
        self._transport: MpiTransport | None = None
        self._number = number
        self.name = rank.name if rank else f"rank {number} on {socket.gethostname()}"
        self._start_timeout_s = options.start_timeout_s or _START_TIMEOUT_S
        self._session = start_watchdog(self._start_timeout_s)
        self._page: StatusPage | None = None
        if self._session is not None:
            with contextlib.suppress(OSError):
                self._page = StatusPage(self._session.descriptor, number, self.name)
        self._events = EventRing()
        self._start_watch = threading.Timer(self._start_timeout_s, self._start_failed)
        self._start_watch.daemon = True
        # An exception would print a traceback if it came while another error is reported.
        signal.signal(signal.SIGTERM, lambda number, frame: self.stop())

    def _open_events(self, job: Job) -> EventRing:
        """Open the ring in the folder of the options, or beside the status page.

        Raises:
            JobError: the options name a folder, and it has no room.
        """
        wanted = self._options.events
        folder = wanted or (self._session.path if self._session else None)
        if folder is None:
            return EventRing()
        try:
            ring = open_ring(folder, self._number, self._options.events_kept)
        except OSError as error:
            if wanted is None:
                return EventRing()
            problem = f"file of events in {wanted.resolve()}: {reason_of(error)}"
            raise JobError(f"{self.name}: {problem}") from None
        ring.describe(
            job_sha256=job.sha256,
            rank=self._number,
            host=socket.gethostname(),
            process=os.getpid(),
        )
        return ring

    def run(self, job: Job, folder: Path) -> None:
        self._start_watch.start()
        self._events = self._open_events(job)
        self._check_open_files(len(job.ranks))
        self._prepare_library()
        self._prepare_engine(job)
        self._transport = mpi = MpiTransport()
        run_on_all(mpi, lambda: self._check_size(job, mpi.size))
        records = run_rank(
            job,
            folder,
            self._options,
            mpi,
            on_start=self._start,
            on_step=self._page.at if self._page is not None else None,
            events=self._events,
        )
        if mpi.rank == job.sink and not self._options.quiet:
            print_summary(records, job, self._options)
        self._set_state(DONE)
        signal.alarm(_FINALIZE_TIMEOUT_S)
        mpi.close()
        signal.alarm(0)

    def _start(self) -> None:
        self._start_watch.cancel()
        if self._page is not None:
            self._page.at(-1, b"its first frame")
        self._events.describe(helpers=sorted(helper_processes))
        # What exists now stays, so the garbage collector need not visit it again.
        gc.freeze()

    def _prepare_engine(self, job: Job) -> None:
        """Start the processes that engines run in, before MPI is initialised."""
        with contextlib.suppress(JobError, IndexError):
            rank = job.ranks[self._number]
            settings = engine_settings(rank, exact=self._options.exact)
            segments = sum(len(route.segments_of(rank.rank)) for route in job.routes)
            prepare_engine(rank.engine, settings, segments)

    def _check_open_files(self, ranks: int) -> None:
        """Refuse a limit of open files that MPI and the channels to the other ranks may exceed."""
        wanted = _OPEN_FILES + _OPEN_FILES_OF_A_RANK * ranks
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = hard if hard != resource.RLIM_INFINITY else wanted
        if soft in range(wanted):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, limit), hard))
        if limit < wanted:
            self.refuse(
                f"the limit of open files is {limit}, expected at least {wanted}: raise it"
                " (ulimit -n)"
            )

    def _prepare_library(self) -> None:
        """Set what the MPI library reads when it is initialised; refuse what could crash it."""
        version = library_version()
        try:
            check_library(os.environ, version)
            prefer(os.environ, version, self._session.path if self._session else None)
            check_room(os.environ, version)
        except JobError as error:
            self.refuse(str(error))

    def refuse(self, message: str) -> NoReturn:
        """Fail with all ranks of the board, the first of which says why."""
        if os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0") != "0":
            raise ElsewhereError(message)
        raise JobError(f"{self.name}: {message}")

    def _check_size(self, job: Job, size: int) -> None:
        if size != len(job.ranks):
            raise JobError(
                f"{self.name}: the driver has {len(job.ranks)} ranks, and the number of processes"
                f" is {size}: start it with mpirun -n {len(job.ranks)}"
            )

    def fail(self, message: str) -> int:
        """Print the one message and end all ranks."""
        self._set_state(FAILED)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        say(message)
        # The alarm's default action ends a process even inside an MPI call that blocks.
        signal.alarm(_ABORT_TIMEOUT_S)
        if self._transport is not None:
            self._transport.abort()
        return 1

    def wait_for_end(self) -> int:
        """Wait for the failed rank to end this one."""
        self._set_state(FAILED)
        time.sleep(_ABORT_TIMEOUT_S)
        return 1

    def outlive(self, message: str) -> int:
        """Leave it to this board's watchdog to report the death, or report it where there is none.

        Other ranks end soon after a rank has failed, too, so a report waits for their end.
        """
        time.sleep(_ABORT_TIMEOUT_S if self._session is not None else _DEATH_REPORT_S)
        return 1 if self._session is not None else self.fail(message)

    def stop(self) -> NoReturn:
        """End at once: mpirun ends the other ranks."""
        if self._page is not None:
            self._page.set_state(STOPPED)
        os._exit(128 + signal.SIGTERM)

    def _start_failed(self) -> None:
        self._set_state(FAILED)
        say(not_started(self.name, self._start_timeout_s))
        os._exit(1)

    def _set_state(self, state: int) -> None:
        self._start_watch.cancel()
        if self._page is not None:
            self._page.set_state(state)
