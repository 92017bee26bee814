"""What each rank of a job did, event by event, and names of the files of a trace."""

from __future__ import annotations

CLOCKS = "clocks.json"
"""What the clocks of boards showed: by board, samples of its clock and that of the launcher."""
LAST_FAILURE = "last-failure"
"""In a build folder: what each rank did last in the job that failed last."""
FAILURE = "failure.json"
"""In that folder: when and why the job failed, and what else is needed to read the files there."""
FAILURE_FORMAT = "rankslice-failure"
FAILURE_VERSION = 2
MAX_BYTES = 64 << 20
"""Of each of the two."""
