from hypothesis import given, strategies as st

from rankslice.backend.runtime.frame_records import RECORD_BYTES, Failure
from rankslice.backend.runtime.job import Rank

failures = st.builds(
    Failure, st.integers(0, 2**32 - 1), st.integers(-1, 2**31 - 1), st.text(max_size=120)
)


@given(failures)
def test_a_record_says_what_was_put_into_it(failure: Failure) -> None:
    record = failure.to_bytes()
    reason = failure.reason.encode(errors="replace").decode()
    assert RECORD_BYTES == len(record)
    assert Failure(failure.rank, failure.segment, reason) == Failure.from_bytes(record)


@given(st.text(min_size=200))
def test_a_long_reason_is_cut_between_two_letters(reason: str) -> None:
    cut = Failure.from_bytes(Failure(0, 0, reason).to_bytes()).reason
    assert reason.encode(errors="replace").decode().startswith(cut)
    assert len(reason.encode(errors="replace")) < 500 or len(cut.encode()) > 492


@given(st.binary(min_size=RECORD_BYTES, max_size=RECORD_BYTES))
def test_any_bytes_are_a_record(record: bytes) -> None:
    failure = Failure.from_bytes(record)
    assert failure.segment >= -1
    assert len(failure.reason.encode()) <= RECORD_BYTES
    assert failure.describe(17, ()).startswith(f"rank {failure.rank}: ")


def test_a_failure_names_rank_segment_and_frame() -> None:
    ranks = [Rank(0, "local_cpu0", "local", "localhost", "cpu", (0,), "null", {})]
    name = "rank 0 (local_cpu0 on localhost)"
    assert f"{name}: segment 2, frame 17: no" == Failure(0, 2, "no").describe(17, ranks)
    assert f"{name}: source, frame 3: no" == Failure(0, -1, "no").describe(3, ranks)
    assert "rank 1: segment 0, frame 0: no" == Failure(1, 0, "no").describe(0, ranks)
