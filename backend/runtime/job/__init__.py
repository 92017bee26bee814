"""The job as a driver describes it, and what follows from it: the same on boards and launcher."""

from .records import (
    NO_FACTS,
    Channel,
    Facts,
    Job,
    PlacedSegment,
    Rank,
    Receive,
    Route,
    Segment,
    Send,
    Tensor,
    rank_name,
    typed_view,
)
from .turns import ALL, EACH, MAX_TURNS, Steps, Turns

__all__ = [
    "ALL",
    "EACH",
    "MAX_TURNS",
    "NO_FACTS",
    "Channel",
    "Facts",
    "Job",
    "PlacedSegment",
    "Rank",
    "Receive",
    "Route",
    "Segment",
    "Send",
    "Steps",
    "Tensor",
    "Turns",
    "rank_name",
    "typed_view",
]
