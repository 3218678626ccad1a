from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustrum.core.plan import make_plan
from lustrum.core.request import (
    BadRequest,
    CancelRequest,
    ExtendRequest,
    StartRequest,
    parse_request,
    read_request,
    shown,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "action",
        "name",
        "profile",
        "nodes",
        "zones",
        "capacity",
        "code",
        "image",
        "ray_version",
        "lustre",
        "overrides",
        "checkpoints",
        "limits",
        "overlap",
        "run_id",
        "hours",
        "export",
    ]
)


class TestAnything:
    @given(st.binary(max_size=400))
    def test_parse_request_any_bytes_are_a_request_or_a_bad_one(self, data: bytes) -> None:
        try:
            parse_request(data)
        except BadRequest as bad:
            assert bad.field and bad.reason
            assert len(bad.value) <= 80

    @given(JSON)
    def test_parse_request_any_json(self, found: Any) -> None:
        try:
            parse_request(json.dumps(found).encode())
        except BadRequest as bad:
            assert bad.field and bad.reason

    @given(st.dictionaries(KEYS, JSON, max_size=5))
    def test_a_request_of_known_keys_is_planned_or_refused_by_name(
        self, found: dict[str, Any]
    ) -> None:
        try:
            request = read_request(found)
            if isinstance(request, StartRequest):
                make_plan(request, "rl-0123456789", "bucket")
        except BadRequest as bad:
            assert bad.field and bad.reason

    @given(st.text(max_size=30), st.none() | st.booleans() | st.integers() | st.text(max_size=30))
    def test_an_override_is_planned_or_refused_by_name(self, key: str, value: Any) -> None:
        try:
            request = read_request({"overrides": {f"policy.{key}": value}})
            assert isinstance(request, StartRequest)
            make_plan(request, "rl-0123456789", "bucket")
        except BadRequest as bad:
            assert bad.field.startswith("overrides")


class TestGood:
    @pytest.mark.parametrize(
        "data", (b"", b"{}", gzip.compress(b"{}", mtime=0), b' {"action":"start"} ')
    )
    def test_an_empty_request_is_the_recipe(self, data: bytes) -> None:
        assert parse_request(data) == StartRequest()

    def test_a_request_survives_its_own_text(self) -> None:
        body = {
            "action": "start",
            "name": "nightly",
            "profile": "qwen2.5-72b-grpo",
            "nodes": 8,
            "zones": ["us-east1-b"],
            "capacity": "my-reservation",
            "code": "gs://bucket/x/code.zip",
            "lustre": {"capacity_gib": 36000, "throughput_mbps_per_tib": 500},
            "overrides": {"grpo.max_num_steps": 20, "policy.x": True, "policy.y": None},
            "checkpoints": {
                "save_period": 2,
                "keep": 2,
                "export_to": "gs://bucket/runs/",
                "required": True,
                "resume_from": "rl-0123456789",
            },
            "limits": {
                "hours": 6,
                "cost_usd": 2500,
                "attempts": 5,
                "capacity_wait_minutes": 60,
                "gpus_idle_minutes": 15,
                "start_within_hours": 6,
            },
            "overlap": "allow",
        }
        request = parse_request(json.dumps(body).encode())
        again = parse_request(request.model_dump_json().encode())
        assert again == request
        assert StartRequest.model_validate_json(request.model_dump_json()) == request

    def test_types_are_kept_as_they_were_given(self) -> None:
        request = parse_request(b'{"overrides": {"a.b": 1, "a.c": 1.0, "a.d": "1", "a.e": true}}')
        assert isinstance(request, StartRequest)
        kinds = [type(value) for value in request.overrides.values()]
        assert kinds == [int, float, str, bool]

    def test_cancel_and_extend(self) -> None:
        cancel = parse_request(b'{"action": "cancel", "run_id": "rl-0123456789"}')
        assert cancel == CancelRequest(action="cancel", run_id="rl-0123456789", export=True)
        extend = parse_request(b'{"action": "extend", "run_id": "rl-0123456789", "hours": 1}')
        assert extend == ExtendRequest(action="extend", run_id="rl-0123456789", hours=1)


class TestBad:
    @pytest.mark.parametrize(
        ("body", "field"),
        (
            ({"nodes": "8"}, "nodes"),
            ({"nodes": 0}, "nodes"),
            ({"nodes": 65}, "nodes"),
            ({"nodes": True}, "nodes"),
            ({"name": "A"}, "name"),
            ({"name": "a\n"}, "name"),
            ({"name": "a" * 64}, "name"),
            ({"zones": "us-east1-b"}, "zones"),
            ({"zones": ["us-east1-b", "us-east1-b"]}, "zones"),
            ({"zones": ["us-east1"]}, "zones.0"),
            ({"zones": ["us-east1-b\n"]}, "zones.0"),
            ({"code": "gs://bucket/code.tar"}, "code"),
            ({"code": "gs://bucket/../code.zip"}, "code"),
            ({"code": "s3://bucket/code.zip"}, "code"),
            ({"code": "gs://bucket/$(id).zip"}, "code"),
            ({"image": "nvcr.io/nvidia/nemo-rl"}, "image"),
            ({"image": "a b:1"}, "image"),
            ({"ray_version": "2.46"}, "ray_version"),
            ({"capacity": "Spot"}, "capacity"),
            ({"capacity": "--flag"}, "capacity"),
            ({"lustre": {"throughput_mbps_per_tib": 300}}, "lustre.throughput_mbps_per_tib"),
            ({"lustre": {"capacity_gib": 1}}, "lustre.capacity_gib"),
            ({"overrides": {"x": 1}}, "overrides.x"),
            ({"overrides": {"a.b; rm": 1}}, "overrides.a.b; rm"),
            ({"overrides": {"+++a.b": [1]}}, "overrides.+++a.b"),
            ({"overrides": {"a.b": [{"c": "${oc.env:HOME}"}]}}, "overrides.a.b"),
            ({"overrides": {"a.b": "x\ny"}}, "overrides.a.b"),
            ({"overrides": {f"a.b{n}": 1 for n in range(101)}}, "overrides"),
            ({"checkpoints": {"resume_from": "../x"}}, "checkpoints.resume_from"),
            ({"checkpoints": {"export_to": "gs://b/a b"}}, "checkpoints.export_to"),
            ({"checkpoints": {"save_period": 0}}, "checkpoints.save_period"),
            ({"limits": {"hours": -1}}, "limits.hours"),
            ({"limits": {"hours": "6"}}, "limits.hours"),
            ({"limits": {"attempts": 1.5}}, "limits.attempts"),
            ({"limits": 6}, "limits"),
            ({"action": "cancel", "run_id": "rl-0123456789", "hours": 1}, "hours"),
            ({"action": "extend", "run_id": "rl-0123456789"}, "hours"),
            ({"action": "extend", "run_id": "rl-0123456789\n", "hours": 1}, "run_id"),
            ({"action": ["start"]}, "action"),
        ),
    )
    def test_e4_e14_the_field_is_named(self, body: dict[str, Any], field: str) -> None:
        with pytest.raises(BadRequest) as bad:
            read_request(body)
        assert bad.value.field == field
        assert bad.value.reason

    def test_shown_is_short_whatever_it_is(self) -> None:
        assert len(shown("x" * 1000)) <= 80
        nested: list[Any] = []
        nested.append(nested)
        assert shown(nested)
