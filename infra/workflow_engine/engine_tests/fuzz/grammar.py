"""The grammar of whole workflows: every kind of step, inside one another, with jumps."""

from __future__ import annotations

import random
from typing import Any

from workflows_engine.builtins import BLOCKING, FUNCTIONS
from workflows_engine.registry import REQUIRED

from engine_tests.fuzz.values import BEGIN, WANTS, Expressions

EXECUTIONS = "googleapis.workflowexecutions.v1.projects.locations.workflows.executions."
SECRETS = "googleapis.secretmanager.v1.projects.secrets."
CLUSTER = {"cluster_id": "c", "location": "l", "project": "p"}
PARENT = "projects/p/locations/l"
CHILD = "projects/local-project/locations/us-central1/workflows/child"
# Connectors with arguments that fit; one of them is often left out or replaced.
CONNECTORS: dict[str, dict[str, Any]] = {
    "googleapis.cloudbuild.v1.projects.triggers.run": {"projectId": "p", "triggerId": "t"},
    "googleapis.cloudbuild.v1.projects.builds.get": {"projectId": "p", "id": "b"},
    "googleapis.cloudbuild.v1.projects.builds.create": {"projectId": "p", "body": {}},
    "googleapis.container.v1.projects.locations.clusters.create": {"parent": PARENT, "body": {}},
    "googleapis.container.v1.projects.locations.clusters.get": {"name": PARENT + "/clusters/c"},
    "googleapis.compute.v1.instances.insert": {"project": "p", "zone": "z", "body": {}},
    "googleapis.bigquery.v2.jobs.insert": {"projectId": "p", "body": {}},
    "googleapis.storage.v1.objects.get": {"bucket": "b", "object": "o/x", "alt": "media"},
    "googleapis.pubsub.v1.projects.topics.publish": {"topic": "projects/p/topics/t", "body": {}},
    "googleapis.run.v2.projects.locations.jobs.run": {"name": PARENT + "/jobs/j"},
    "googleapis.run.v2.projects.locations.jobs.list": {"parent": PARENT, "pageSize": 3},
    "googleapis.nothing.v1.projects.things.frobnicate": {"x": 1},
    EXECUTIONS + "run": {"workflow_id": "child", "argument": {"k": 1}, "labels": {"a": "b"}},
    EXECUTIONS + "create": {"parent": CHILD, "body": {"argument": "[1]", "labels": {"a": "b"}}},
    EXECUTIONS + "get": {"name": CHILD + "/executions/x", "view": "BASIC"},
    EXECUTIONS + "cancel": {"name": CHILD + "/executions/x"},
    EXECUTIONS + "list": {"parent": CHILD, "filter": 'state="ACTIVE"', "pageSize": 2,
                          "view": "FULL", "orderBy": "startTime"},
    SECRETS + "versions.accessString": {"secret_id": "s", "version": "1", "project_id": "p"},
    SECRETS + "addVersionString": {"secret_id": "s", "data": "x"},
    "gke.request": {**CLUSTER, "method": "GET", "path": "/api/v1/pods", "query": {"a": "b"}},
    "gke.create_job": {**CLUSTER, "job": {"metadata": {"name": "j"}}, "namespace": "n"},
    "gke.await_job": {**CLUSTER, "job_name": "j", "timeout": 600},
    "gke.delete_job": {**CLUSTER, "job_name": "j", "query": {"a": "b"}},
}  # fmt: skip
URLS = [
    "https://a.example/x", "http://127.0.0.1:1/", '${"https://a.example/" + s}', "http://[::1]/",
    "https://a.run.app/", "ftp://a", "http://a b/", "http://é.example", "http://a:99999/", "//a",
]  # fmt: skip
PREDICATES = [
    "${http.default_retry_predicate}", "${retry.always}", "${retry.never}", "${wants}", "${wants}",
    "${s}",
]  # fmt: skip
JUDGEMENTS = [
    "${e.code == 503}", '${"ConnectionError" in e.tags}', True, False, None, "${e}", "${1 / 0}",
    "${wants(e)}", '${get_type(e) == "map"}', '${map.get(e, "code") != 404}', "${retry.always(e)}",
]  # fmt: skip


class Grammar(Expressions):
    """Makes sources; one seed, one source."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(f"workflow {seed}"))
        self._steps = 0
        self._targets: list[str] = []  # the steps that a jump from here may go to
        self._shared: set[str] | None = None  # inside a branch: what of above it may write

    def source(self) -> Any:
        """A whole workflow: main, a subworkflow or two and a predicate."""
        self.routines = [("sub", 2), ("wants", 1)]
        main = {"steps": self.routine([], 6)}
        if self.chance.random() < 0.7:
            main = {"params": [self.one(["args", {"args": 1}])], **main}
        source = {
            "main": main,
            "sub": {
                "params": ["p", {"q": self.literal(self.kind())}],
                "steps": self.routine(["p", "q"], 3),
            },
            "wants": {"params": ["e"], "steps": [{"judge": {"return": self.one(JUDGEMENTS)}}]},
        }
        if self.chance.random() < 0.005:
            source[self.one(["len", "http.get", "a-b", "main2", "$"])] = {"steps": [{"s": {}}]}
        return source if self.chance.random() < 0.95 else main["steps"]

    def routine(self, params: list[str], size: int) -> list[Any]:
        """The steps of a routine; the first gives every variable a value."""
        self.names = [*params, "r", "v0", "v1", "bell"]
        self._targets, self._shared = [], None
        begin = {"begin": {"assign": BEGIN}}
        ring = {"ring": {"call": "events.create_callback_endpoint", "result": "bell"}}
        return [begin, ring, *self.steps(2, 1 + self.chance.randrange(size), loop=False)]

    def steps(self, depth: int, count: int, *, loop: bool) -> list[Any]:
        """Named steps that may jump to one another."""
        names = []
        for _ in range(count):
            self._steps += 1
            names.append(f"s{self._steps}")
        if self.chance.random() < 0.002:
            names[-1] = self.one(["end", "a b", "", "s1", "break"])
        outer, self._targets = self._targets, names
        found = []
        for name in names:
            body = self.body(depth, loop=loop)
            if self.chance.random() < 0.5:
                body = self.guarded(body)
            if self.chance.random() < 0.15:
                body = {**body, "next": self.target(loop=loop)}
            found.append({name: body})
        self._targets = outer
        return found

    def guarded(self, body: dict[str, Any]) -> dict[str, Any]:
        """A step whose error does not end the workflow, so that what follows is reached."""
        if not {"try", "for"}.isdisjoint(body) or not body:
            return body
        caught = {"as": "e", "steps": [{f"c{self._steps}": {"assign": [{"own": "${e}"}]}}]}
        inner = {key: value for key, value in body.items() if key != "next"}
        outside = {"next": body["next"]} if "next" in body else {}
        return {"try": inner, "except": caught, **outside} if inner else body

    def target(self, *, loop: bool) -> Any:
        """Where a jump goes, seldom to where it may not."""
        if self.chance.random() < 0.01:
            return self.one(["s1", "break", "end", "nowhere"])
        ends = [] if self._shared is not None else ["end"]
        return self.one([*self._targets, *ends, *(["break", "continue"] * 2 if loop else [])])

    def inside(self, depth: int, names: list[str], *, loop: bool) -> list[Any]:
        """A few steps in a scope of their own, with variables of their own."""
        known = list(self.names)
        self.names += names
        found = self.block(depth, loop=loop)
        self.names = known
        return found

    def writable(self, names: list[str]) -> str:
        """A variable to write to: in a branch a shared one, or one of its own."""
        if self._shared is None or self.chance.random() < 0.005:
            return str(self.one(names))
        shared = [name for name in names if name in self._shared]
        return str(self.one(shared)) if shared else "own"

    def block(self, depth: int, *, loop: bool) -> list[Any]:
        """A few steps inside another step."""
        return self.steps(depth - 1, 1 + self.chance.randrange(2), loop=loop)

    def body(self, depth: int, *, loop: bool) -> dict[str, Any]:
        """The body of a step; at depth 0 one that holds no steps."""
        roll = self.chance.random()
        if depth <= 0 or roll < 0.6:
            return self.simple()
        if roll < 0.68:
            return {"switch": self.cases(depth, loop=loop)}
        if roll < 0.78:
            return {"for": self.loop(depth)}
        if roll < 0.86:
            return {"parallel": self.parallel(depth)}
        if roll < 0.97:
            return self.attempt(depth, loop=loop)
        return {"steps": self.block(depth, loop=loop)}

    def simple(self) -> dict[str, Any]:
        """A step that holds no others."""
        roll = self.chance.random()
        if roll < 0.3:
            return {"assign": [self.assignment() for _ in range(1 + self.chance.randrange(3))]}
        if roll < 0.85:
            return self.call_step()
        if roll < 0.93:
            kind = self.one(["string", "map", "map", None])
            return {"raise": self.value(kind)}
        if roll < 0.998 and self._shared is None:
            return {"return": self.value()}
        if roll < 0.998:
            return {"assign": [{"own": self.value()}]}
        return self.one([{}, {"next": "end"}, {"assign": []}, {"return": None}, {"call": "x.y"}])

    def assignment(self) -> dict[str, Any]:
        """One assignment: to a variable, a new one, or a part of one."""
        roll = self.chance.random()
        if roll < 0.5:
            return {self.writable(["i", "d", "s", "l", "m", "r", "t", "n"]): self.value()}
        if roll < 0.6 and self._shared is None:
            return {f"v{self.chance.randrange(4)}": self.value()}
        name = self.writable(["m", "l", "ls", "r", "n", "raw", "s"])
        if name == "own":
            return {name: self.value()}
        path = self.one([".k", ".a.b.c", "[0]", "[i]", '["x y"]', "[s]", "[len(ls) - 1]", "[2][0]",
                         ".in.k[1].k", "[9]", f"[{self.expression(None, 1)}]"])  # fmt: skip
        return {name + path: self.value()}

    def call_step(self) -> dict[str, Any]:
        """A call of anything that can be called."""
        roll = self.chance.random()
        if roll < 0.25:
            name = self.one(sorted(FUNCTIONS))
            args = self.arguments(FUNCTIONS[name].params)
        elif roll < 0.75:
            name = self.one(sorted(BLOCKING))
            args = self.arguments(BLOCKING[name])
            args.update(self.fitting(name))
        elif roll < 0.85:
            name, args = "sub", {"p": self.value()}
        else:
            name = self.one(sorted(CONNECTORS))
            args = dict(CONNECTORS[name])
            for key in list(args):
                roll = self.chance.random()
                if roll < 0.04:
                    del args[key]
                elif roll < 0.16:
                    args[key] = self.value("string")
            if self.chance.random() < 0.3:
                args["connector_params"] = self.connector_params()
        step: dict[str, Any] = {"call": name}
        if args or self.chance.random() < 0.5:
            step["args"] = args
            if self.chance.random() < 0.03 and name == "sub":
                step["args"] = list(args.values())
        if self.chance.random() < 0.6:
            step["result"] = self.writable(["r", "r", "m", "l", "s"])
            if name == "events.create_callback_endpoint" and self._shared is None:
                step["result"] = "bell"
        return step

    def arguments(self, params: Any) -> dict[str, Any]:
        """Arguments by name: the required ones and some others."""
        args = {}
        for param, default in params:
            if default is REQUIRED or self.chance.random() < 0.25:
                args[param] = self.value(WANTS.get(param))
                if param == "timeout":
                    args[param] = self.one([5, 0.5, "${i}", "${s}", "${n}", 1800])
        if self.chance.random() < 0.002:
            args["nonsense"] = 1
        return args

    def fitting(self, name: str) -> dict[str, Any]:
        """Arguments of a function that waits which make it wait, most of the time."""
        if self.chance.random() < 0.15:
            return {}
        fits: dict[str, Any] = {}
        if name.startswith("http."):
            fits["url"] = self.one(URLS)
            more = self.one(["none", "none", "query", "headers", "auth", "timeout"])
            if more == "query":
                fits["query"] = {"q": self.value("integer", 0)}
            elif more == "headers":
                fits["headers"] = {"H": self.value("string", 0)}
            elif more == "auth":
                fits["auth"] = {"type": "OIDC"}
            elif more == "timeout":
                fits["timeout"] = self.one([5, 0.5, "${i}", "${d}", "${s}", 1800, 300])
            if name == "http.request":
                fits["method"] = self.one(["GET", "POST", "PATCH", "TRACE", "${s}"])
        elif name == "sys.sleep":
            fits["seconds"] = self.number()
        elif name == "sys.sleep_until":
            fits["time"] = self.one(["${stamp}", "${time.format(sys.now() + i)}"])
        elif name == "events.await_callback":
            fits = {"callback": self.one(["${bell}", "${bell}", "${m}"]), "timeout": self.number()}
        elif name == "events.create_callback_endpoint":
            fits = {"http_callback_method": self.one(["POST", "GET", "PUT"])}
        elif name.startswith("experimental"):
            fits["workflow_id"] = self.one(["child", "child", "nobody"])  # itself: no end
            if name.endswith("map"):
                fits["arguments"] = "${ls}"
        return fits

    def connector_params(self) -> Any:
        """The parameters of a connector, often wrong."""
        policy = {"initial_delay": self.number(), "max_delay": self.number(), "multiplier": 1.5}
        options = [{"timeout": self.number()}, {"skip_polling": True}, {"polling_policy": policy},
                   {}, {"scopes": ["a"]}, "${m}", {"timeout": 60}, {"nonsense": 1}]  # fmt: skip
        return self.one(options)

    def cases(self, depth: int, *, loop: bool) -> list[Any]:
        """The cases of a switch."""
        cases = []
        for _ in range(1 + self.chance.randrange(3)):
            roll = self.chance.random()
            case: dict[str, Any] = {"condition": self.condition()}
            if roll < 0.4:
                case["steps"] = self.block(depth, loop=loop)
            elif roll < 0.85:
                case.update(self.simple())
            else:
                case["next"] = self.target(loop=loop)
            cases.append(case)
        return cases

    def loop(self, depth: int, *, branch: bool = False) -> dict[str, Any]:
        """The inside of a for."""
        value = f"x{self._steps}"
        names = [value]
        found: dict[str, Any] = {"value": value}
        if self.chance.random() < 0.3:
            found["range"] = self.one(
                [[1, 3], [0, "${i}"], "${[1, i]}", "${l}", [0.5, 2.5], [3, 1], "${[d, 4]}"]
            )
        else:
            found["in"] = self.one(["${l}", "${ls}", "${keys(m)}", [1, "${s}"],
                                    "${" + self.expression("list") + "}"])  # fmt: skip
            if self.chance.random() < 0.4:
                found["index"] = f"at{self._steps}"
                names.append(found["index"])
        found["steps"] = self.inside(depth, names, loop=not branch)
        return found

    def parallel(self, depth: int) -> dict[str, Any]:
        """The inside of a parallel step."""
        possible = [name for name in ["i", "s", "l", "m", "r", "d"]
                    if self._shared is None or name in self._shared]  # fmt: skip
        shared = self.chance.sample(possible, self.chance.randrange(len(possible) + 1))
        found: dict[str, Any] = {"shared": shared} if shared else {}
        if self.chance.random() < 0.3:
            found["concurrency_limit"] = self.one([1, 2, "${i}", "${s}", 50])
        if self.chance.random() < 0.3:
            found["exception_policy"] = "continueAll"
        outer, self._shared = self._shared, set(shared)
        if self.chance.random() < 0.5:
            found["for"] = self.loop(depth, branch=True)
        else:
            count = 2 + self.chance.randrange(2)
            found["branches"] = [
                {f"b{number}": {"steps": self.inside(depth, [], loop=False)}}
                for number in range(count)
            ]
        self._shared = outer
        return found

    def attempt(self, depth: int, *, loop: bool) -> dict[str, Any]:
        """A try with or without retry and except."""
        inner: Any = {"steps": self.block(depth, loop=loop)}
        if self.chance.random() < 0.4:
            inner = self.simple()
        step: dict[str, Any] = {"try": inner}
        roll = self.chance.random()
        if roll < 0.25:
            step["retry"] = self.one(["${http.default_retry}", "${m}",
                                      "${http.default_retry_non_idempotent}"])  # fmt: skip
        elif roll < 0.6:
            step["retry"] = self.policy()
        if roll > 0.2:
            known = list(self.names)
            self.names.append("e")
            if self.chance.random() < 0.3:
                step["except"] = {"as": "e", **self.simple()}
            else:
                step["except"] = {"as": "e", "steps": self.block(depth, loop=loop)}
            self.names = known
        return step

    def policy(self) -> dict[str, Any]:
        """A retry policy, with parts missing or wrong now and then."""
        policy: dict[str, Any] = {}
        if self.chance.random() < 0.9:
            policy["predicate"] = self.one(PREDICATES)
        if self.chance.random() < 0.9:
            policy["max_retries"] = self.one([0, 1, 2, 3, "${i}", "${d}", "${s}", -1])
        if self.chance.random() < 0.7:
            backoff = {"initial_delay": self.number(), "max_delay": self.number(),
                       "multiplier": self.number()}  # fmt: skip
            keys = self.chance.sample(sorted(backoff), self.chance.randrange(4))
            policy["backoff"] = {key: backoff[key] for key in keys}
        return policy
