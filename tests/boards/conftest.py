"""Fixtures of the tests in this folder."""

from boards.fixtures import boards, fresh_boards

__all__ = ["boards", "fresh_boards"]
