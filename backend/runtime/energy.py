"""The energy of a board while a run lasts, as the board's sensor tells it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from .job import RankSpec
from .sensors import Sensor, SensorError, find_sensor

__all__ = ["BoardEnergy"]

_PERIOD_S = 0.1
"""Between two looks at a sensor of power: often enough for a run, and next to no processor time."""

_NO_SENSOR = "there is no power sensor that this account may read"


class BoardEnergy:
    """Counts a board's energy while it is entered, on the board's first rank; on others nothing.

    It is the energy of all that the sensor sees, as a rule the whole board: what it draws at rest
    and what other programs make it draw are in it.
    """

    def __init__(self, ranks: Sequence[RankSpec], rank: int) -> None:
        """Look for the sensor.

        Args:
            ranks: of the job, by rank.
            rank: the one of this process.
        """
        self._board = ranks[rank].board
        self._is_first = all(spec.board != self._board for spec in ranks[:rank])
        self._sensor = _found() if self._is_first else None
        self._told: dict[str, Any] = {"source": "absent", "sensor": None, "reason": _NO_SENSOR}

    def __enter__(self) -> BoardEnergy:
        if self._sensor is not None:
            self._sensor.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sensor is None:
            return
        if error is None:
            self._told = _told_by(self._sensor)
        self._sensor.__exit__(kind, error, trace)

    def record(self) -> dict[str, Any]:
        """Return what the rank's record gets: ``energy``, or nothing if it is not the first.

        ``energy`` has ``board``, ``source`` and ``sensor``; if the source is ``measured``,
        ``joules``, ``seconds`` and ``mean_w``; if it is ``absent``, the ``reason``.
        """
        return {"energy": {"board": self._board, **self._told}} if self._is_first else {}


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
