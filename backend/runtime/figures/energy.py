"""The energy of a board during a run, measured by the board's sensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..job import Rank
from .sensors import Sensor, SensorError, find_sensor

_PERIOD_S = 0.1
"""Between two readings of a power sensor: enough for a run, and little processor time."""

_NO_SENSOR = "there is no power sensor that this account may read"


class BoardEnergy:
    """Counts a board's energy during a run, on the board's first rank; on others nothing.

    It covers all that the sensor sees, as a rule the whole board, including idle power and other
    programs.
    """

    def __init__(self, ranks: Sequence[Rank], rank: int) -> None:
        """Look for the sensor."""
        self._board = ranks[rank].board
        self._is_first = all(spec.board != self._board for spec in ranks[:rank])
        self._sensor = _found() if self._is_first else None

    def during(self, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run, and return the record of the run; on the board's first rank with ``energy``.

        ``energy`` has ``board``, ``source`` and ``sensor``; if the source is ``measured``,
        ``joules``, ``seconds`` and ``mean_w``; if it is ``absent``, the ``reason``.
        """
        if not self._is_first:
            return run()
        if self._sensor is None:
            told = {"source": "absent", "sensor": None, "reason": _NO_SENSOR}
            return {**run(), "energy": {"board": self._board, **told}}
        with self._sensor as sensor:
            record = run()
            return {**record, "energy": {"board": self._board, **_told_by(sensor)}}


def _found() -> Sensor | None:
    try:
        return find_sensor(period_s=_PERIOD_S)
    except OSError:
        return None


def _told_by(sensor: Sensor) -> dict[str, Any]:
    try:
        joules = sensor.joules()
    except SensorError as error:
        return {"source": "absent", "sensor": sensor.name, "reason": f"{sensor.name}: {error}"}
    return {
        "source": "measured",
        "sensor": sensor.name,
        "joules": joules,
        "seconds": sensor.seconds,
        "mean_w": joules / sensor.seconds,
    }
