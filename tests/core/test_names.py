from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core import names


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


class TestNames:
    @given(st.lists(st.text(), min_size=2, max_size=20, unique=True))
    def test_run_id_none_is_part_of_another(self, keys: list[str]) -> None:
        ids = {names.run_id(key) for key in keys if "\ud800" not in key}
        for one in ids:
            assert names.is_run_id(one)
            assert not any(one != two and one in two for two in ids)

    @pytest.mark.parametrize(
        "text",
        (
            "",
            "rl-",
            "rl-0123456789\n",
            "RL-0123456789",
            "rl-012345678",
            "rl-01234567890",
            "rl-012345678g",
            " rl-0123456789",
            "../rl-0123456789",
        ),
    )
    def test_is_run_id_refuses(self, text: str) -> None:
        assert not names.is_run_id(text)

    def test_names_of_one_run_and_another_do_not_overlap(self) -> None:
        one, two = names.run_id("a"), names.run_id("b")
        made = [names.submission_id, names.stage_id]
        assert not any(one in name(two, number) for name in made for number in range(3))
        # attempt 1 is no prefix that finds attempt 10: ids are asked for whole
        assert names.submission_id(one, 1) != names.submission_id(one, 10)

    def test_labels_are_what_the_cloud_accepts(self) -> None:
        labels = names.labels("rl-0123456789", 1767225600.9)
        assert labels == {
            "lustrum-run": "rl-0123456789",
            "lustrum-expires": "1767225600",
            "managed-by": "lustrum",
        }

    def test_region_of(self) -> None:
        assert names.region_of("us-east1-b") == "us-east1"


class TestMessageKey:
    def test_message_key_the_given_key_wins(self) -> None:
        attributes = {"idempotency_key": "k", "schedule": "s", "cron": "* * * * *"}
        assert names.message_key(attributes, "m", at("2026-01-01T00:00:00+00:00")) == "key:k"

    def test_message_key_kinds_never_collide(self) -> None:
        assert names.message_key({"idempotency_key": "1"}, "2", None) != names.message_key(
            {}, "1", None
        )

    def test_message_key_of_a_schedule_is_its_tick(self) -> None:
        attributes = {"schedule": "s", "cron": "0 3 * * *", "tz": "Europe/Paris"}
        keys = {
            names.message_key(attributes, message, at(moment))
            for message, moment in (
                ("1", "2026-01-10T02:00:00+00:00"),
                ("2", "2026-01-10T02:00:59+00:00"),
                ("3", "2026-01-11T01:59:59+00:00"),
            )
        }
        assert len(keys) == 1

    def test_message_key_without_a_cron_is_the_message(self) -> None:
        assert names.message_key({"schedule": "s"}, "m", None) == "message:m"


class TestLastTick:
    @pytest.mark.parametrize(
        ("cron", "tz", "moment", "tick"),
        (
            ("0 3 * * *", "Etc/UTC", "2026-01-10T03:00:00+00:00", "2026-01-10T03:00:00+00:00"),
            ("0 3 * * *", "Etc/UTC", "2026-01-10T02:59:59+00:00", "2026-01-09T03:00:00+00:00"),
            (
                "*/15 * * * *",
                "Asia/Kolkata",
                "2026-01-10T00:20:00+00:00",
                "2026-01-10T00:15:00+00:00",
            ),
            (
                "0 3 * * *",
                "America/New_York",
                "2026-01-10T08:00:01+00:00",
                "2026-01-10T08:00:00+00:00",
            ),
            (
                "0 3 * * *",
                "America/New_York",
                "2026-07-10T08:00:01+00:00",
                "2026-07-10T07:00:00+00:00",
            ),
            ("0 0 29 2 *", "Etc/UTC", "2026-03-01T00:00:00+00:00", "2024-02-29T00:00:00+00:00"),
            # 02:30 does not exist on the night the clock goes forward
            (
                "30 2 * * *",
                "Europe/Paris",
                "2026-03-28T12:00:00+00:00",
                "2026-03-28T01:30:00+00:00",
            ),
        ),
    )
    def test_last_tick(self, cron: str, tz: str, moment: str, tick: str) -> None:
        assert names.last_tick(cron, tz, at(moment)) == at(tick)

    @pytest.mark.parametrize("tz", ("Europe/Paris", "America/New_York", "Australia/Lord_Howe"))
    @pytest.mark.parametrize("day", ("2026-03-29", "2026-10-25", "2026-03-08", "2026-04-05"))
    def test_last_tick_one_key_a_day_also_when_the_clock_changes(self, tz: str, day: str) -> None:
        start = at(day + "T00:00:00+00:00").timestamp() - 86_400
        ticks = [
            names.last_tick("30 2 * * *", tz, datetime.fromtimestamp(start + hour * 600, UTC))
            for hour in range(3 * 144)
        ]
        assert ticks == sorted(ticks)
        moments = [datetime.fromtimestamp(start + hour * 600, UTC) for hour in range(3 * 144)]
        assert all(tick <= moment for tick, moment in zip(ticks, moments, strict=True))
        gaps = [two - one for one, two in pairwise(sorted(set(ticks)))]
        assert all(gap.total_seconds() >= 3600 for gap in gaps)

    @pytest.mark.parametrize(
        "cron",
        (
            "",
            "x",
            "* * * *",
            "61 * * * *",
            "* 25 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "0 0 30 2 *",
            "@daily",
            "* * * * * * *",
            "a" * 1000,
            "*/0 * * * *",
            "\ud800",
        ),
    )
    def test_last_tick_refuses_what_is_no_schedule(self, cron: str) -> None:
        with pytest.raises(ValueError, match="cron"):
            names.last_tick(cron, "Etc/UTC", at("2026-01-10T03:00:00+00:00"))

    @pytest.mark.parametrize("tz", ("", "x", "Mars/Base", "../../etc/passwd", "/etc/localtime"))
    def test_last_tick_refuses_what_is_no_time_zone(self, tz: str) -> None:
        with pytest.raises(ValueError, match="tz"):
            names.last_tick("* * * * *", tz, at("2026-01-10T03:00:00+00:00"))

    @pytest.mark.parametrize("moment", ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"))
    def test_last_tick_at_the_ends_of_time_raises_nothing_else(self, moment: str) -> None:
        for tz in ("Etc/UTC", "Asia/Tokyo", "America/New_York"):
            try:
                names.last_tick("0 3 * * *", tz, at(moment))
            except ValueError:
                continue


class TestStageIds:
    def test_stage_ids_one_for_each_try(self) -> None:
        run = "rl-4f0c2a9d31"
        assert names.stage_ids(run, 1, 1) == [f"{run}-stage-z1"]
        assert names.stage_ids(run, 1, 3) == [
            f"{run}-stage-z1",
            f"{run}-stage-z1-2",
            f"{run}-stage-z1-3",
        ]
