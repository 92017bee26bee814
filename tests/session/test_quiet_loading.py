"""What comes through of what libraries print."""

from __future__ import annotations

import os
import sys

import pytest

from rankslice.session.verification.unsliced_outputs import without_info


def test_what_is_more_than_info_is_printed_in_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with without_info():
        os.write(2, b"INFO: created\nWARNING: slow\nINFO: done\nno line's end")
        assert "" == capfd.readouterr().err
    assert "WARNING: slow\nno line's end" == capfd.readouterr().err


def test_it_is_printed_after_an_error_too(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with without_info():
            os.write(2, b"ERROR: wrong\n")
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    os.write(2, b"later\n")
    assert "ERROR: wrong\nlater\n" == capfd.readouterr().err


def test_a_program_without_standard_error_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with without_info():
        pass
