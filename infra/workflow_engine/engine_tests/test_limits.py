"""Limits at run time: memory, sizes, steps, and that none of them can be caught."""

from __future__ import annotations

import pytest
from workflows_engine import ApiError, Engine, virtual

from engine_tests.support import drive, failure, faults, result, workflow


class TestMemory:
    def test_sizes_are_counted_as_documented(self) -> None:
        source = """
            - set:
                assign:
                  - a: "This is a string of 28 bytes"
                  - b: ${a}
                  - n: [1, 2.5, true]
                  - m: {key: v}
        """
        # 36 + 36, 8 + 3 * 8, 8 + (8 + 3) + (8 + 1)
        assert drive(source).memory == 36 + 36 + 32 + 28

    def test_changing_a_part_counts_the_difference(self) -> None:
        source = """
            - set:
                assign:
                  - m: {a: {b: "xx"}, l: [1, "abc"]}
                  - m.a.b: "xxxx"
                  - m.a.c.d: 1
                  - m.l[1]: null
                  - m.l[0]: {k: [1]}
            - copy: {assign: [{n: "${m}"}]}
        """
        execution = drive(source)
        # n was measured as a whole, m piece by piece.
        assert execution.memory % 2 == 0
        direct = drive("- s: {assign: [{m: {a: {b: xxxx, c: {d: 1}}, l: [{k: [1]}, null]}}]}")
        assert execution.memory == 2 * direct.memory

    def test_memory_comes_back_when_scopes_end(self) -> None:
        source = """
            main:
              steps:
                - loop:
                    for:
                      value: v
                      range: [1, 100]
                      steps:
                        - big: {assign: [{x: "${s() + s() + s() + s()}"}]}
                        - sub: {call: sub, args: {p: "${x}"}}
                - try_it:
                    try: {raise: x}
                    except: {as: e, steps: [{h: {assign: [{y: "${e}"}]}}]}
            sub: {params: [p], steps: [{s: {assign: [{q: "${p}"}]}}]}
            s: {steps: [{s: {return: "0123456789012345678901234567890123456789"}}]}
        """
        assert drive(source).memory == 0

    def test_over_512_kilobytes_ends_the_execution_uncaught(self) -> None:
        source = """
            - init: {assign: [{s: "0123456789abcdef"}, {l: []}]}
            - t:
                try:
                  steps:
                    - more: {assign: [{s: "${s + s}"}, {l: "${list.concat(l, s)}"}], next: more}
                except: {as: e, steps: [{h: {return: caught}}]}
        """
        error = failure(source)
        assert error["tags"] == ["ResourceLimitError"]
        assert "memory" in error["message"]

    def test_a_string_over_256_kilobytes_is_refused(self) -> None:
        source = """
            - init: {assign: [{s: "%s"}]}
            - more: {assign: [{s: "${s + s}"}]}
        """ % ("é" * 40_000)
        error = failure(source + "\n            - again: {assign: [{s: '${s + s}'}]}")
        assert "longer than the 262144 bytes" in error["message"]
        assert drive(source).state == "SUCCEEDED"

    def test_a_value_that_grows_inwards_is_refused(self) -> None:
        source = "- i: {assign: [{x: 1}]}\n- g: {assign: [{x: ['${x}']}], next: g}"
        assert failure(source)["tags"] == ["ResourceLimitError"]


class TestSteps:
    def test_100000_steps_are_allowed_and_one_more_is_not(self) -> None:
        source = """
            - init: {assign: [{n: 1}]}
            - l: {for: {value: v, range: [1, 49999], steps: [{s: {assign: [{n: "${v}"}]}}]}}
            %s
        """
        assert drive(source % "").steps == 100_000
        assert failure(source % "- more: {return: 1}")["tags"] == ["ResourceLimitError"]

    def test_an_endless_loop_lets_others_run(self) -> None:
        async def main() -> list[str]:
            ended: list[str] = []
            engine = Engine()
            engine.deploy("endless", workflow("- a: {assign: [{x: 1}], next: a}"))
            engine.deploy("quick", workflow("- a: {call: sys.sleep, args: {seconds: 0}}"))
            runs = {"endless": engine.create("endless"), "quick": engine.create("quick")}

            async def note(name: str) -> None:
                await runs[name].wait()
                ended.append(name)

            import asyncio

            await asyncio.gather(note("endless"), note("quick"))
            return ended

        assert virtual.run(main) == ["quick", "endless"]


class TestSizes:
    def test_the_source_may_have_128_kilobytes(self) -> None:
        source = "- a: {return: '%s'}"
        fits = 128 * 1024 - len(source % "")
        assert result(source % ("x" * fits)) == "x" * fits
        assert "131073 bytes" in faults(source % ("x" * (fits + 1)))[0]

    def test_the_argument_may_have_32_kilobytes(self) -> None:
        async def main() -> None:
            engine = Engine()
            engine.deploy(
                "w", workflow("main: {params: [a], steps: [{s: {return: '${len(a)}'}}]}")
            )
            execution = await engine.create("w", "x" * (32 * 1024 - 2)).wait()
            assert execution.value == 32 * 1024 - 2
            with pytest.raises(ApiError) as raised:
                engine.create("w", "x" * (32 * 1024 - 1))
            assert raised.value.code == 400
            with pytest.raises(ApiError):
                engine.create("w", argument_json="{not json")

        virtual.run(main)

    @pytest.mark.parametrize(
        ("env", "fits"),
        [
            ({f"V{i}": "x" for i in range(20)}, True),
            ({f"V{i}": "x" for i in range(21)}, False),
            ({"A": "x" * 4096}, True),
            ({"A": "x" * 4097}, False),
            ({"GOOGLE_X": "x"}, False),
            ({"WORKFLOWS_X": "x"}, False),
        ],
    )
    def test_environment(self, env: dict[str, str], fits: bool) -> None:
        engine = Engine()
        source = workflow("- a: {return: 1}")
        if fits:
            engine.deploy("w", source, env)
        else:
            with pytest.raises(ApiError):
                engine.deploy("w", source, env)

    def test_labels(self) -> None:
        engine = Engine()
        source = workflow("- a: {return: 1}")
        engine.deploy("w", source, labels={f"l{i}": "x" for i in range(64)})
        for labels in ({f"l{i}": "x" for i in range(65)}, {"a": "x" * 64}, {"A": "x"}):
            with pytest.raises(ApiError):
                engine.deploy("w", source, labels=labels)

    def test_a_bytes_result_cannot_be_encoded(self) -> None:
        assert failure("- a: {return: '${text.encode(\"x\")}'}")["tags"] == ["TypeError"]

    def test_an_execution_lives_a_year(self) -> None:
        month = "{call: sys.sleep, args: {seconds: 2592000}}"
        source = f"- l: {{for: {{value: v, range: [1, 20], steps: [{{s: {month}}}]}}}}"
        execution = drive(source)
        assert execution.failure["tags"] == ["TimeoutError"]
        assert (execution.end_time or 0) - (execution.start_time or 0) == 365 * 24 * 3600


class TestConcurrency:
    def test_executions_over_the_quota_queue_and_start_in_order(self) -> None:
        async def main() -> None:
            engine = Engine(max_concurrent=2, max_backlog=2)
            engine.deploy("w", workflow("- a: {call: sys.sleep, args: {seconds: 10}}"))
            runs = [engine.create("w") for _ in range(4)]
            assert [run.state for run in runs] == ["ACTIVE", "ACTIVE", "QUEUED", "QUEUED"]
            with pytest.raises(ApiError) as raised:
                engine.create("w")
            assert raised.value.code == 429
            with pytest.raises(ApiError):
                engine.create("w", overflow_buffering=False)
            engine.cancel(runs[2].name)
            await runs[0].wait()
            assert [run.state for run in runs][2:] == ["CANCELLED", "ACTIVE"]
            await runs[3].wait()
            assert engine.now() - runs[0].created_time == 20

        virtual.run(main)
