"""How requests and answers look; launcher and board agree on these."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Request = dict[str, Any]
    Answer = dict[str, Any]
else:
    Request = Answer = dict  # Python 3.8 takes no brackets here

MARK = "rankslice-answer "
"""Begins the line that is an answer."""


_sending = threading.Lock()


def send(answer: Answer) -> None:
    """Print an answer, on a line of its own whichever threads send others."""
    with _sending:
        print(MARK + json.dumps(answer), flush=True)
