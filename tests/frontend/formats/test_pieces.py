from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.pieces import coalesce, pieces_length, write_pieces

CONTENT = bytes(index * 7 % 251 for index in range(1000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    pieces=st.lists(
        st.one_of(st.binary(max_size=9), st.tuples(st.integers(0, 990), st.integers(0, 10)))
    )
)
def test_pieces_are_written_in_order(tmp_path, pieces):
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    expected = b"".join(p if isinstance(p, bytes) else CONTENT[p[0] : sum(p)] for p in pieces)
    ranges = [p if isinstance(p, bytes) else ByteRange(source, *p) for p in pieces]
    write_pieces(ranges, tmp_path / "target")
    assert expected == (tmp_path / "target").read_bytes()
    assert len(expected) == pieces_length(ranges)


def test_large_ranges_between_small_pieces_keep_their_place(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(5_000_000))
    large = ByteRange(source, 3, 4_000_001)
    write_pieces([b"head", large, b"between", large, b"tail"], tmp_path / "target")
    middle = source.read_bytes()[3:4_000_004]
    expected = b"head" + middle + b"between" + middle + b"tail"
    assert expected == (tmp_path / "target").read_bytes()


def test_a_file_system_without_copying_in_the_kernel_is_served_too(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    write_pieces([b"head", ByteRange(source, 0, 3_000_000)], tmp_path / "target")
    assert b"head" + source.read_bytes() == (tmp_path / "target").read_bytes()


def test_neighbours_become_one_piece(tmp_path):
    first, second = ByteRange(tmp_path, 0, 5), ByteRange(tmp_path, 5, 2)
    pieces = [b"a", b"", b"b", first, second, ByteRange(tmp_path, 9, 0), b"c"]
    assert [b"ab", ByteRange(tmp_path, 0, 7), b"c"] == list(coalesce(pieces))


@pytest.mark.parametrize("length", [1001, 3_000_000])
def test_a_source_that_has_become_shorter_is_an_error(tmp_path, length):
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    with pytest.raises(RankSliceError, match="ends at byte 1000"):
        write_pieces([ByteRange(source, 0, length)], tmp_path / "target")


def test_a_source_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(RankSliceError, match="No such file"):
        write_pieces([ByteRange(tmp_path / "gone", 0, 1)], tmp_path / "target")
