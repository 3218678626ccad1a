"""How amounts are written for people."""

from __future__ import annotations

import pytest
from lustrum.show.formatting import clock, dollars, duration, moment, size


class TestDuration:
    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [
            (-3, "0.0 s"),
            (0, "0.0 s"),
            (0.04, "40 ms"),
            (0.9994, "999 ms"),
            (0.9999, "1.0 s"),
            (9.94, "9.9 s"),
            (9.99, "10 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (303, "5 min 03 s"),
            (3599.7, "1 h 00 min"),
            (12_000, "3 h 20 min"),
            (86_399.9, "1 d 0 h"),
            (187_200, "2 d 4 h"),
        ],
    )
    def test_duration_rounds_without_a_sixtieth_second(
        self, seconds: float, expected: str
    ) -> None:
        assert duration(seconds) == expected


class TestSize:
    @pytest.mark.parametrize(
        ("count", "expected"),
        [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (947 << 30, "947.0 GiB"),
            (1 << 62, "4096.0 PiB"),
        ],
    )
    def test_size_takes_the_unit_that_fits(self, count: int, expected: str) -> None:
        assert size(count) == expected


class TestMoments:
    def test_times_are_in_utc(self) -> None:
        assert moment(0) == "1970-01-01 00:00:00 UTC" and clock(3661) == "01:01:01"

    def test_dollars_have_cents(self) -> None:
        assert dollars(1902.4128) == "$1,902.41"
