"""`run --mock`: calls answered from a file, so that a workflow is tested without a program."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from workflows_engine.cli import main

FLOW = """
main:
  params: [args]
  steps:
    - start:
        try:
          call: http.post
          args:
            url: https://example.com/jobs?dry=1
            query: {page: 2, all: true}
            headers: {X-Kind: small}
            body: {n: "${args.n}", more: {a: 1, b: [1, 2]}}
          result: started
        retry: {predicate: "${http.default_retry_predicate}", max_retries: 3,
                backoff: {initial_delay: 10, max_delay: 10, multiplier: 1}}
    - answer: {return: {body: "${started.body}", at: "${sys.now()}"}}
"""
CONNECTORS = """
main:
  steps:
    - build:
        call: googleapis.cloudbuild.v1.projects.triggers.run
        args: {projectId: p, triggerId: t}
        result: built
    - odd: {call: googleapis.odd.v9.things.spin, args: {thing: x}, result: spun}
    - answer: {return: ["${built.response.id}", "${spun}"]}
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a workflow with mocks; gives exit code, the result or error, and stderr."""

    def call(flow: str, mocks: str, data: Any = None) -> tuple[int, Any, str]:
        (tmp_path / "w.yaml").write_text(textwrap.dedent(flow))
        (tmp_path / "m.yaml").write_text(textwrap.dedent(mocks))
        argv = ["run", str(tmp_path / "w.yaml"), "--mock", str(tmp_path / "m.yaml")]
        code = main([*argv, "--data", json.dumps(data)])
        out, err = capsys.readouterr()
        if code == 2:
            return code, None, err
        first, _, rest = err.partition("\n")
        return (code, json.loads(out), err) if code == 0 else (code, json.loads(first), rest)

    return call


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Check a file of mocks; gives exit code and stdout."""

    def call(mocks: str) -> tuple[int, str]:
        (tmp_path / "m.yaml").write_text(textwrap.dedent(mocks))
        code = main(["check", str(tmp_path / "m.yaml")])
        return code, capsys.readouterr().out

    return call


class TestAnswers:
    @pytest.mark.parametrize(
        "match",
        [
            "{url: 'https://example.com/*'}",
            "{url: 'https://example.com/jobs', method: POST}",
            "{url: 'https://example.com/jobs?dry=1'}",
            r"{url_regex: 'https://[a-z.]+/jobs\?.*'}",
            "{url: '*', body: {n: 5, more: {b: [1, 2]}}}",
            "{url: '*', query: {dry: 1, page: '2', all: true}, headers: {x-kind: small}}",
        ],
    )
    def test_a_call_that_matches_gets_the_answer(self, run: Any, match: str) -> None:
        mocks = f"mocks: [{{match: {match}, answer: {{body: {{id: 7}}}}}}]"
        code, result, err = run(FLOW, mocks, {"n": 5})
        assert (code, result["body"], err) == (0, {"id": 7}, "")

    @pytest.mark.parametrize(
        ("match", "reason"),
        [
            ("{url: 'https://example.com'}", "is for https://example.com"),
            ("{url: '*', method: GET}", "is for GET"),
            (r"{url_regex: 'https://x'}", "is for the pattern https://x"),
            ("{url: '*', body: {n: 6}}", "body.n is 5, not 6"),
            ("{url: '*', body: {n: true}}", "body.n is 5, not true"),
            ("{url: '*', body: {m: 6}}", "body has no 'm'"),
            ("{url: '*', body: {more: {b: [1]}}}", "body.more.b is [1, 2], not [1]"),
            ("{url: '*', query: {page: 3}}", 'query.page is "2", not "3"'),
            ("{url: '*', headers: {X-None: a}}", 'headers.X-None is null, not "a"'),
            ("{connector: '*'}", "has none of this kind"),
        ],
    )
    def test_what_nothing_answers_says_why(self, run: Any, match: str, reason: str) -> None:
        mocks = f"mocks: [{{name: the start, match: {match}}}]"
        code, error, err = run(FLOW, mocks, {"n": 5})
        assert code == 1 and error["tags"] == ["MockError"]
        assert "no mock answers POST https://example.com/jobs?dry=1" in error["message"]
        assert reason in error["message"]
        assert "mock 1 (the start) was not used" in err

    def test_no_except_hides_what_nothing_answers(self, run: Any) -> None:
        flow = """
            - a:
                try: {call: http.get, args: {url: "https://example.com/"}}
                except: {as: e, steps: [{b: {return: hidden}}]}
        """
        code, error, _ = run(flow, "mocks: []")
        assert code == 1 and "no mock answers GET" in error["message"]

    def test_the_first_that_matches_counts_and_answers_come_in_turn(self, run: Any) -> None:
        flow = """
            - first: {assign: [{all: []}]}
            - loop:
                for:
                  value: i
                  range: [1, 5]
                  steps:
                    - a: {call: http.get, args: {url: "https://e.com/x"}, result: r}
                    - b: {assign: [{all: "${list.concat(all, r.body)}"}]}
            - give: {return: "${all}"}
        """
        mocks = """
            mocks:
              - {match: {url: "*/x"}, answer: {body: once}, times: 1}
              - {match: {url: "*"}, answers: [{body: 1}, {body: 2}]}
        """
        assert run(flow, mocks)[1] == ["once", 1, 2, 2, 2]

    def test_it_fails_n_times_after_a_delay_in_virtual_time(self, run: Any) -> None:
        mocks = """
            mocks:
              - match: {url: "*"}
                delay: 100
                fail: {times: 2}
                answer: {body: up, delay: 5}
        """
        code, result, _ = run(FLOW, mocks, {"n": 5})
        assert code == 0 and result["body"] == "up"
        assert result["at"] == pytest.approx(1_767_225_600 + 100 + 10 + 100 + 10 + 5)

    @pytest.mark.parametrize(
        ("mock", "error"),
        [
            ("answer: {status: 404, body: gone}", {"code": 404, "body": "gone"}),
            ("error: {tag: ConnectionError}", {"tags": ["ConnectionError"]}),
            ("error: {tag: KeyError, message: m}", {"tags": ["KeyError", "LookupError"]}),
            ("error: {tags: [Own], message: m, x: 1}", {"tags": ["Own"], "message": "m", "x": 1}),
            ("fail: {times: 9, status: 500}", {"code": 500}),
            ("fail: {times: 9, error: {tag: TimeoutError}}", {"tags": ["TimeoutError"]}),
        ],
    )
    def test_errors_are_the_languages_own(self, run: Any, mock: str, error: Any) -> None:
        code, got, _ = run(FLOW, f"mocks: [{{match: {{url: '*'}}, {mock}}}]", {"n": 5})
        assert code == 1
        assert error.items() <= got.items()


class TestConnectors:
    def test_a_mock_gives_the_end_of_the_operation(self, run: Any) -> None:
        mocks = """
            mocks:
              - match: {connector: "googleapis.cloudbuild.*", args: {projectId: p}}
                answer: {body: {response: {id: b1}}}
              - match: {connector: googleapis.odd.v9.things.spin}
                answer: {body: [1]}
        """
        assert run(CONNECTORS, mocks)[:2] == (0, ["b1", [1]])

    def test_without_one_the_requests_of_a_built_in_connector_meet_the_mocks(
        self, run: Any
    ) -> None:
        mocks = """
            mocks:
              - match: {url: "https://cloudbuild.googleapis.com/*:run", method: POST}
                answer: {body: {name: operations/o1}}
              - match: {url: "https://cloudbuild.googleapis.com/v1/operations/o1"}
                answers:
                  - body: {name: operations/o1}
                  - body: {name: operations/o1, done: true, response: {id: b2}}
              - match: {connector: "*.spin"}
                answer: {body: x}
        """
        assert run(CONNECTORS, mocks)[:2] == (0, ["b2", "x"])

    def test_other_arguments_and_unknown_connectors_are_told(self, run: Any) -> None:
        mocks = """
            mocks:
              - match: {connector: "googleapis.cloudbuild.*", args: {projectId: q}}
        """
        code, error, _ = run(CONNECTORS, mocks)
        assert code == 1 and 'args.projectId is "p", not "q"' in error["message"]
        mocks = "mocks: [{match: {connector: 'googleapis.cloudbuild.*'}, answer: {body: {}}}]"
        flow = CONNECTORS.replace("${built.response.id}", "1")
        code, error, _ = run(flow, mocks)
        assert code == 1 and "no mock answers googleapis.odd.v9.things.spin" in error["message"]

    def test_a_status_is_an_http_error(self, run: Any) -> None:
        mocks = "mocks: [{match: {connector: '*'}, answer: {status: 403, body: no}}]"
        code, error, _ = run(CONNECTORS, mocks)
        assert code == 1 and error["tags"] == ["HttpError"] and error["code"] == 403


class TestCallbacks:
    FLOW = """
        - one: {call: events.create_callback_endpoint, args: {http_callback_method: POST}, result: a}
        - two: {call: events.create_callback_endpoint, args: {http_callback_method: PUT}, result: b}
        - wait: {call: events.await_callback, args: {callback: "${b}"}, result: r}
        - give: {return: ["${r.http_request.body}", "${r.http_request.method}", "${sys.now()}"]}
    """  # noqa: E501

    def test_an_endpoint_gets_its_request_after_a_time(self, run: Any) -> None:
        code, result, err = run(self.FLOW, "callbacks: [{endpoint: 2, after: 60, body: {x: 1}}]")
        assert (code, result, err) == (0, [{"x": 1}, "PUT", 1_767_225_660.0], "")

    def test_what_is_refused_or_never_sent_is_told(self, run: Any) -> None:
        mocks = """
            callbacks:
              - {endpoint: 2, after: 1}
              - {endpoint: 2, after: 0, method: GET}
              - {endpoint: 3}
        """
        err = run(self.FLOW, mocks)[2]
        assert "callback 2 was refused with 405" in err
        assert "callback 3 (to endpoint 3) was not sent" in err


class TestTheFile:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("mocks:\n- match: {url: a}\n  answr: {}", "m.yaml:3: mocks[0].answr is not known"),
            (
                "mocks:\n- match: {url: a}\n  answer:\n    status: '200'",
                "m.yaml:4: mocks[0].answer",
            ),
            ("mocks:\n- match: {url: a}\n  answer:\n    status: '200'", "not '200'"),
            ("mocks:\n- match: {url: a}\n  answer:\n    status: 700", "less than or equal to 599"),
            ("mocks:\n- match: {method: POST}", "needs one of url, url_regex and connector"),
            ("mocks:\n- match: {url: a, connector: b}", "needs one of url"),
            ("mocks:\n- match: {url: a, args: {}}", "match by url cannot have args"),
            ("mocks:\n- match: {connector: a, body: 1}", "match by connector cannot have body"),
            ("mocks:\n- match: {url_regex: '('}", "url_regex is no pattern"),
            ("mocks:\n- {}", "m.yaml:2: mocks[0].match: field required"),
            ("mocks:\n- match: {url: a}\n  answer: {}\n  error: {}", "has one of answer, answers"),
            ("mocks:\n- match: {url: a}\n  delay: -1", "greater than or equal to 0, not -1"),
            ("mocks:\n- match: {url: a}\n  fail: {times: 1, status: 500, error: {}}", "not both"),
            ("mocks: 5", "mocks: input should be a valid list, not 5"),
            ("mocks: [", "not YAML"),
        ],
    )
    def test_a_fault_names_its_line_field_and_value(
        self, checked: Any, run: Any, text: str, told: str
    ) -> None:
        code, out = checked(text)
        assert code == 2 and told in out
        assert told in run("- a: {return: 1}", text)[2]

    def test_a_good_file_and_a_workflow_are_told_apart(self, checked: Any) -> None:
        assert checked("mocks: [{match: {url: a}}]") == (0, "ok\n")
        assert (
            checked("main: {steps: [{a: {return: 1}}]}\nmocks: {steps: [{a: {return: 1}}]}")[0]
            == 0
        )  # a subworkflow of that name

    def test_the_schema_names_every_field(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["mock-schema"]) == 0
        schema = json.loads(capsys.readouterr().out)
        assert {"mocks", "callbacks"} == set(schema["properties"])
        assert "url_regex" in schema["$defs"]["Match"]["properties"]
