"""Fixtures of the tests in this folder."""

from __future__ import annotations

from boards.fixtures import boards, fresh_boards, rack

__all__ = ["boards", "fresh_boards", "rack"]
