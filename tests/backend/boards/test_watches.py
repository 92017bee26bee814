from __future__ import annotations

from rankslice.backend.boards.watches import MAX_SAMPLES, ClockSamples


def test_an_answer_belongs_to_the_number_that_was_sent() -> None:
    samples = ClockSamples()
    first, second = samples.ask(1000), samples.ask(2000)
    samples.take(second, 77, 2600)
    samples.take(first, 55, 3000)
    assert [(77, 2300, 600), (55, 2000, 2000)] == samples.samples()


def test_an_answer_to_nothing_is_ignored() -> None:
    samples = ClockSamples()
    number = samples.ask(1000)
    samples.take(number + 1, 5, 1100)
    samples.take(number, 5, 1100)
    samples.take(number, 5, 1200)
    assert [(5, 1050, 100)] == samples.samples()


def test_long_runs_keep_the_quickest_answers_of_all_times() -> None:
    samples = ClockSamples()
    seconds = 20 * MAX_SAMPLES
    for second in range(seconds):
        begin = 10**9 * second
        trip = 500 if second % 50 == 0 else 100_000
        samples.take(samples.ask(begin), begin, begin + trip)
    kept = samples.samples()
    assert MAX_SAMPLES // 2 <= len(kept) <= MAX_SAMPLES + 64
    assert kept == sorted(kept)
    quick = [board_ns for board_ns, _, trip in kept if trip == 500]
    assert len(quick) > 0.9 * seconds / 50
    assert quick[0] == 0
    assert quick[-1] > 0.98e9 * seconds


def test_answers_that_never_come_take_no_memory() -> None:
    samples = ClockSamples()
    for number in range(1000):
        samples.ask(number)
    assert len(samples._sent_ns) <= 64
