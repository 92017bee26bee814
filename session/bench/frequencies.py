"""Clock frequencies of the boards of a job, set for a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rankslice.backend.boards.answers import HeldFrequency
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import on_all
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.session.bench.board_processes import board_processes
from rankslice.session.run import PreparedRun

_ANSWER_S = 30.0


@contextmanager
def held_frequencies(
    frequencies: Sequence[float], prepared: PreparedRun
) -> Iterator[Callable[[float | None], float | None]]:
    """Yield what sets one of some frequencies on each board of a job.

    It takes megahertz, and returns the lowest limit that the kernel of a board has made of them;
    ``None``: nothing is set. After the block, and whatever ends this program, the boards have their
    former limits.

    Args:
        frequencies: in hertz, all that will be set; empty: none.
        prepared: the job.

    Raises:
        RankSliceError: a board cannot set or restore them; with the reasons of all boards.
    """
    if not frequencies:
        yield lambda mhz: None
        return
    khz = [round(hertz / 1e3) for hertz in frequencies]
    with board_processes(prepared, "hold_frequencies", HeldFrequency, khz=khz) as by_board:
        processes = [*by_board.values()]
        try:
            yield partial(_hold, processes)
        except RankSliceError as error:
            if mistakes := _restore(processes):
                raise RankSliceError(*error.mistakes, *mistakes) from None
            raise
        except BaseException:
            _restore(processes)
            raise
        raise_mistakes(_restore(processes))


def _hold(processes: Sequence[RemoteProcess], mhz: float | None) -> float | None:
    if mhz is None:
        return None

    def hold(process: RemoteProcess) -> int:
        process.write(b"%d\n" % round(1e3 * mhz))
        return process.ask(HeldFrequency, _ANSWER_S).khz

    return min(on_all(hold, processes)) / 1e3


def _restore(processes: Sequence[RemoteProcess]) -> Sequence[Mistake]:
    """Wait until all boards have their former limits; return what keeps some from it."""
    for process in processes:
        process.end_input()
    try:
        on_all(lambda process: process.ask(HeldFrequency, _ANSWER_S), processes)
    except RankSliceError as error:
        hint = "a board that is out of reach restores its frequencies itself within 10 s"
        return [Mistake(m.where, m.found, hint) for m in error.mistakes if isinstance(m, Mistake)]
    return ()
