"""What an override may be, and that Hydra reads what was sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from lustrum.core.overrides import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_TEXT,
    check_key,
    check_together,
    check_value,
    hydra,
    merged,
    written,
)
from lustrum.core.request import BadRequest, read_request
from omegaconf import OmegaConf
from pydantic import JsonValue

from testing.samples import plan

REQUESTS = Path(__file__).parents[1] / "field" / "request"
# What has a meaning in some grammar on the way: Hydra's, OmegaConf's, YAML's.
ODD = st.sampled_from(
    [*"'\"\\,:=[]{}()$ \n\t#&*!|>%@~+-.?/", "null", "true", "1", "1e5", "é", "😀"]
)
TEXT = st.text(max_size=12) | st.lists(ODD, max_size=6).map("".join)
NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
MAP_KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./@+%*?|-]{0,8}", fullmatch=True)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(MAP_KEYS, inner, max_size=4),
    max_leaves=8,
)


def arrives(*words: str, onto: dict[str, Any] | None = None) -> Any:
    """Return the configuration after NeMo-RL's `parse_hydra_overrides` of ``words``."""
    config = OmegaConf.create({"a": {"b": 0, "old": 1}} if onto is None else onto)
    OmegaConf.set_struct(config, True)
    parsed = OverridesParser.create().parse_overrides(overrides=list(words))
    ConfigLoaderImpl._apply_overrides_to_config(overrides=parsed, cfg=config)
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def same(one: Any, other: Any) -> bool:
    """Say whether two values are equal and of equal types: 1 is not 1.0, nor True."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class TestArrives:
    @given(VALUES)
    @example(["'\n"])  # a quote before the end of a line
    @example(["\\\n", "\\'\n\\"])
    def test_what_is_accepted_arrives_as_it_was_sent(self, value: JsonValue) -> None:
        try:
            check_value("+a.new", value)
        except ValueError:
            return
        assert same(arrives(written("+a.new", value))["a"]["new"], value)

    @pytest.mark.parametrize(
        "value",
        (
            *(
                "",
                " ",
                "a,b",
                "a:b",
                "a=b",
                "it's",
                'say "x"',
                "\\",
                "\\'",
                "\\\\'x",
                "x\\",
                "\\\\",
            ),
            *(
                "{a}",
                "[1]",
                "(",
                "null",
                "Null",
                "true",
                "1",
                "1.0",
                "1_000",
                "1e5",
                "nan",
                "-inf",
            ),
            *("é", "日本", "😀", "</answer>", "a\tb", "$x", "$ (id)", "`", "#", "choice(1,2)"),
            *(0, -1, 2**63 - 1, 0.1, 1e22, 5e-324, -0.0, True, False, None),
            *(
                [],
                {},
                [[]],
                [{}],
                ["</answer>", "a,b", "\n\n"],
                [1, "1", 1.0, True, "true", None, "null"],
            ),
            {"a.b/c-d": {"x": [1]}, "factor": 4.0, "type": "yarn"},
            [{"name": "torch.optim.lr_scheduler.ConstantLR", "kwargs": {"factor": 1}}],
        ),
    )
    def test_values_that_have_a_meaning_elsewhere(self, value: JsonValue) -> None:
        check_value("a.b", value)
        assert same(arrives(written("a.b", value))["a"]["b"], value)

    def test_marks_add_change_and_remove(self) -> None:
        words = [written("+a.new.x", 1), written("++a.b", [2]), written("~a.old", None)]
        assert arrives(*words) == {"a": {"b": [2], "new": {"x": 1}}}

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "null"),
            (True, "true"),
            (False, "false"),
            (20, "20"),
            (3e-7, "3e-07"),
            ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct"),
            ("null", "'null'"),
            ("True", "'True'"),
            ("1e5", "'1e5'"),
            ("a b", "'a b'"),
            ("val:x", "'val:x'"),
            ("a,b", "'a,b'"),
            ("", "''"),
            ("it's", "'it\\'s'"),
            (["a", 1], "[a,1]"),
            ({"a": {"b": None}}, "{a:{b:null}}"),
        ],
    )
    def test_hydra_writes_plainly(self, value: JsonValue, text: str) -> None:
        assert hydra(value) == text


class TestCheckKey:
    @pytest.mark.parametrize(
        "key", ("a.b", "+a.b", "++a.b", "~a.b", "a.0.b", "a.b-c", "policy.vllm_kwargs.X")
    )
    def test_what_hydra_reads_as_that_key(self, key: str) -> None:
        check_key(key)
        found = OverridesParser.create().parse_override(written(key, None))
        assert found.key_or_group == key.lstrip("+~")

    @pytest.mark.parametrize(
        "key",
        ("a", "", "+", ".a", "a.", "a..b", "a b.c", "a@b.c", "a.b\n", "~~a.b", "a.b=1", "é.a"),
    )
    def test_what_is_no_key(self, key: str) -> None:
        with pytest.raises(ValueError, match="dotted names"):
            check_key(key)


class TestCheckValue:
    @pytest.mark.parametrize(
        "value",
        (
            *("${a}", "x${oc.env:HF_TOKEN}", "???", "\x00", "\x1b[31m", "\ud800", "x" * 4097),
            *("/etc/passwd", "/lustre", "a/../b", "..", "file:///etc/passwd", "FILE:///root/x"),
            *(float("nan"), float("inf"), 2**63, -(2**64)),
        ),
    )
    @pytest.mark.parametrize("wrap", (lambda x: x, lambda x: [1, x], lambda x: {"k": [{"x": x}]}))
    def test_refused_at_any_depth(self, value: JsonValue, wrap: Any) -> None:
        with pytest.raises(ValueError, match="must"):
            check_value("policy.x", wrap(value))

    @pytest.mark.parametrize("key", ("1", "a b", "", "a:b", "null", "NaN", "${x}", "it's", "é"))
    def test_map_keys_that_would_arrive_as_something_else(self, key: str) -> None:
        with pytest.raises(ValueError, match="map"):
            check_value("policy.x", {key: 1})

    def test_sizes_are_bounded(self) -> None:
        deep: JsonValue = 1
        for _ in range(MAX_DEPTH):
            deep = [deep]
        values: list[Any] = [deep, [0] * MAX_ITEMS, ["x" * (MAX_TEXT + 1)]]
        for value in values:
            with pytest.raises(ValueError, match="at most"):
                check_value("policy.x", value)
        check_value("policy.x", [0] * (MAX_ITEMS - 1))

    def test_a_removal_has_no_value(self) -> None:
        with pytest.raises(ValueError, match="must be null"):
            check_value("~policy.x", 1)


class TestTogether:
    def test_one_key_under_two_marks(self) -> None:
        with pytest.raises(ValueError, match=re.escape("++policy.x: is given twice, as policy.x")):
            check_together({"policy.x": 1, "++policy.x": 2})

    def test_the_command_line_is_bounded(self) -> None:
        with pytest.raises(ValueError, match="bytes on the command line"):
            check_together({f"policy.x{n}": "x" * MAX_TEXT for n in range(5)})

    def test_merged_replaces_whatever_the_mark(self) -> None:
        assert merged({"a.b": 1, "a.c": 2}, {"~a.b": None}) == {"a.c": 2, "~a.b": None}


class TestRequests:
    @pytest.mark.parametrize(
        "path", sorted(REQUESTS.glob("r0[67]*.json")), ids=lambda one: one.stem
    )
    def test_lists_of_public_reports_arrive(self, path: Path) -> None:
        from lustrum.core.supervisor_jobs import training_command
        from lustrum.core.training_command import training_argv

        ((key, value),) = json.loads(path.read_text())["overrides"].items()
        argv = training_argv(training_command(plan(overrides={key: value}), False))
        (word,) = [one for one in argv if one.startswith(key + "=")]
        first, rest = key.split(".", 1)
        found = arrives(word.replace(key, "+a.b", 1), onto={"a": {}})
        assert found["a"]["b"] == value and first == "policy" and rest

    @pytest.mark.parametrize(
        ("overrides", "reason"),
        (
            ({"+data.x": "${oc.env:HF_TOKEN}"}, "interpolated"),
            ({"data.x": 1, "++data.x": 2}, "given twice"),
            ({"+data.x": [[[[[[[[[1]]]]]]]]]}, "deep"),
        ),
    )
    def test_refused_with_a_reason(self, overrides: dict[str, Any], reason: str) -> None:
        with pytest.raises(BadRequest, match=reason) as bad:
            read_request({"overrides": overrides})
        assert bad.value.field.startswith("overrides")

    def test_a_goal_under_a_mark_is_the_goal(self) -> None:
        made = plan(overrides={"++grpo.max_num_steps": 7})
        assert made.max_num_steps == 7 and not made.overrides
