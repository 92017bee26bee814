"""``rankslice.report``."""

from __future__ import annotations

from pathlib import Path

from rankslice.commands.arguments import checked
from rankslice.commands.report.report import Report, make_report


@checked
def report(*folders: str | Path) -> Report:
    """Return the last runs of build folders side by side, with ratios to the first.

    ``to_html()`` of what it returns is the page, ``to_json()`` its figures, and ``differences``
    says in what the runs differ besides the mapping.

    Args:
        folders: made by ``build``, and run.

    Raises:
        RankSliceError: a folder is no build folder, was not run, or is given twice.
    """
    return make_report([Path(folder) for folder in folders])
