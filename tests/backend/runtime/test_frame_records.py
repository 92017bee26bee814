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
    found = Failure.from_bytes(Failure(0, 0, reason).to_bytes()).reason
    assert reason.encode(errors="replace").decode().startswith(found)
    assert len(reason.encode(errors="replace")) < 500 or len(found.encode()) > 492


@given(st.binary(min_size=RECORD_BYTES, max_size=RECORD_BYTES))
def test_any_bytes_are_a_record(record: bytes) -> None:
    found = Failure.from_bytes(record)
    assert found.segment >= -1
    assert len(found.reason.encode()) <= RECORD_BYTES
    assert found.told(17, ()).startswith(f"rank {found.rank}: ")


def test_a_failure_names_rank_segment_and_frame() -> None:
    ranks = [Rank(0, "local_cpu0", "local", "localhost", "cpu", (0,), "null", {})]
    assert "rank 0 (local_cpu0 on localhost): segment 2, frame 17: no" == Failure(0, 2, "no").told(
        17, ranks
    )
    assert "rank 0 (local_cpu0 on localhost): source, frame 3: no" == Failure(0, -1, "no").told(
        3, ranks
    )
    assert "rank 1: segment 0, frame 0: no" == Failure(1, 0, "no").told(0, ranks)
