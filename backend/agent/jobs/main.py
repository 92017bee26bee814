"""Actions around jobs: one request per connection, answered once, or by a stream of reports."""

from __future__ import annotations

import errno
from pathlib import Path

from ..protocol import Answer, Request, send
from .co_run import co_run
from .folders import DISK_FULL, HOME, RefusedError
from .hold_frequencies import hold_frequencies
from .job_watch import watch
from .packages import commit, receive, room
from .prepare_run import check, measure
from .python_packages import make_environment
from .runs import fetch


def main(request: Request) -> None:
    answer: Answer | None
    try:
        if Path() == HOME:
            raise RefusedError("this account has no home folder there; set HOME")
        answer = ACTIONS[request["action"]](request)
    except RefusedError as error:
        answer = {"error": str(error)}
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = DISK_FULL if is_full else f"{error.filename or 'the disk'}: {error.strerror}"
        answer = {"error": reason}
    if answer is not None:
        send(answer)


ACTIONS = {
    action.__name__: action
    for action in (
        *(receive, commit, room, make_environment, check, watch, fetch, measure, co_run),
        hold_frequencies,
    )
}
