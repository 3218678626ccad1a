"""One execution of a workflow: its state, and how it runs to its end."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

from workflows_engine import control, limits
from workflows_engine.blocks import Returned, run_block
from workflows_engine.callbacks import Callbacks
from workflows_engine.deployment import Deployment
from workflows_engine.errors import FatalError, WorkflowError, error, resource_limit
from workflows_engine.history import History
from workflows_engine.ports import EngineServices
from workflows_engine.scope import Frame, Scope
from workflows_engine.values import from_json, printable, to_json

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Execution:
    """An Execution resource; ``steps`` and ``external_steps`` are what would be billed."""

    def __init__(
        self,
        engine: EngineServices,
        deployment: Deployment,
        id_: str,
        argument: str | None,
        labels: dict[str, str],
        seed: str,
        keep_history: int,
        detail: bool = False,
    ) -> None:
        self.engine = engine
        self.deployment = deployment
        self.id = id_
        self.name = f"{deployment.name}/executions/{id_}"
        self.revision_id = deployment.revision_id
        self.argument = argument
        self.labels = labels
        self.state = "QUEUED"
        self.result: str | None = None
        self.error: dict[str, Any] | None = None
        self.created_time: float = engine.now()
        self.start_time: float | None = None
        self.end_time: float | None = None
        self.call_log_level = "CALL_LOG_LEVEL_UNSPECIFIED"
        self.steps = 0
        self.external_steps = 0
        self.memory = 0
        self.pause_at = 4096
        self.random = random.Random(seed)
        self.history = History(keep_history, engine.now, detail) if keep_history else None
        self.callbacks = Callbacks(self)
        self.current: dict[Frame, Frame] = {}  # caller -> routine it is inside of
        self.environment = {
            **deployment.env,
            "GOOGLE_CLOUD_PROJECT_ID": engine.project,
            "GOOGLE_CLOUD_PROJECT_NUMBER": engine.project_number,
            "GOOGLE_CLOUD_LOCATION": engine.location,
            "GOOGLE_CLOUD_WORKFLOW_ID": deployment.id,
            "GOOGLE_CLOUD_WORKFLOW_REVISION_ID": deployment.revision_id,
            "GOOGLE_CLOUD_WORKFLOW_EXECUTION_ID": id_,
            "GOOGLE_CLOUD_SERVICE_ACCOUNT_NAME": engine.service_account,
        }
        self._root = Frame(self, "main", None, 1, 0)
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def value(self) -> Any:
        """The decoded result of a succeeded execution."""
        return None if self.result is None else from_json(self.result)

    @property
    def failure(self) -> Any:
        """The decoded error value of a failed execution: what an except would have got."""
        return None if self.error is None else from_json(self.error["payload"])

    @property
    def current_steps(self) -> list[dict[str, str]]:
        """Where it is: the call stack of the main strand, outermost first."""
        frame: Frame | None = self._root
        steps = []
        while frame is not None:
            steps.append({"routine": frame.routine, "step": frame.step})
            frame = self.current.get(frame)
        return steps

    def uuid(self) -> str:
        """A random id, deterministic from the engine's seed."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def start(self) -> None:
        """Begin to run; the running loop drives it."""
        self.state = "ACTIVE"
        self.start_time = self.engine.now()
        self._task = asyncio.ensure_future(self._run())

    async def wait(self) -> Execution:
        """Wait for the end; gives the execution itself."""
        await self._ended.wait()
        return self

    def cancel(self) -> None:
        """Cancel: no except block sees it, nothing more runs. No effect after the end."""
        if self.state in ENDED:
            return
        self._end("CANCELLED")
        if self.history is not None:
            self.history.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        timer = asyncio.get_running_loop().call_later(limits.EXECUTION_SECONDS, self._expire)
        try:
            result = await self._main()
        except (WorkflowError, FatalError) as exc:
            self._fail(exc)
        except RecursionError:
            self._fail(resource_limit("steps and values nest too deep for this engine"))
        except asyncio.CancelledError:
            # cancel() has set the state; a loop that is closing has not.
            if self.state not in ENDED:
                self._end("CANCELLED")
        except Exception as exc:  # a fault of the engine or of an injected handler
            self.engine.report(self, exc)
            self._fail(error("SystemError", f"{type(exc).__name__}: {exc}"))
        else:
            self._succeed(result)
        finally:
            timer.cancel()

    async def _main(self) -> str:
        routine = self.deployment.routines["main"]
        scope = Scope(self._root)
        if routine.params:
            name, default = routine.params[0]
            if self.argument is not None or default is None:
                given = None if self.argument is None else from_json(self.argument)
                scope.assign(name, given)
            else:
                value = default.run(scope)
                scope.assign(name, await value if default.waits else value)
        signal = await run_block(routine.block, scope)
        text = to_json(signal.value if isinstance(signal, Returned) else None)
        size = len(text.encode("utf-8", "replace"))
        if size > limits.RESULT_BYTES:
            raise resource_limit(f"a result of {size} bytes, {limits.RESULT_BYTES} are allowed")
        return text

    def _expire(self) -> None:
        if self.state not in ENDED:
            self._fail(error("TimeoutError", "the execution is older than a year"))
            if self._task is not None:
                self._task.cancel()

    def _succeed(self, result: str) -> None:
        if self.state not in ENDED:
            self.result = result
            self._end("SUCCEEDED")

    def _fail(self, exc: WorkflowError | FatalError) -> None:
        if self.state in ENDED:
            return
        self.error = {
            "payload": to_json(printable(exc.value)),
            "context": control.context(exc),
            "stackTrace": {
                "elements": [
                    {"step": step, "routine": routine, "position": {"line": str(line)}}
                    for routine, step, line in exc.trace
                ]
            },
        }
        self._end("FAILED")

    def _end(self, state: str) -> None:
        self.state = state
        self.end_time = self.engine.now()
        self._ended.set()
        self.engine.ended(self)
