"""The top-level folders with the product's code."""

from __future__ import annotations

ROOMS = (
    "backend",
    "commands",
    "exploration",
    "framework",
    "frontend",
    "measurement",
    "networks",
    "serve",
    "session",
    "views",
)
