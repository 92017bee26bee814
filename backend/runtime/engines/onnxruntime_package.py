"""Where onnxruntime is imported: once its telemetry is off."""

from __future__ import annotations

import os
from typing import Any


def load_onnxruntime() -> Any:
    """Return the package ``onnxruntime``, which tells nobody what it runs.

    From 1.32 on it sends events to its vendor, and keeps a device id and a queue of events in the
    user's cache. It reads the variable once, when its library is loaded; a program that has loaded
    it before sends no further events.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
