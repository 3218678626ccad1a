"""What the commands share: settings, services, reading of arguments, errors as one line."""

from __future__ import annotations

import json
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperGroup

from lustrum.cli.pack import CodeRefused
from lustrum.cli.setup_files import found_environment
from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.record import Run
from lustrum.core.request import MAX_BYTES, BadRequest, Request, StartRequest, parse_request
from lustrum.core.settings import Settings
from lustrum.show.preview import UNKNOWN
from lustrum.wiring.services import Services
from lustrum.wiring.settings import read_prices, read_settings

T = TypeVar("T")
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_PASSING = (
    "ServiceUnavailable",
    "DeadlineExceeded",
    "InternalServerError",
    "Aborted",
    "TooManyRequests",
    "ResourceExhausted",
    "GatewayTimeout",
    "BadGateway",
    "RetryError",
    "TransportError",
)


@dataclass
class Session:
    """What a command works with; tests hand in their own as the context's object."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    make_services: Callable[[Settings], Services] = Services
    sleep: Callable[[float], None] = time.sleep
    open_page: Callable[[str], bool] = webbrowser.open
    _services: Services | None = None

    @property
    def services(self) -> Services:
        """The services of the control plane. Raises BadRequest when it is not known where."""
        if self._services is None:
            self._services = self.make_services(self.settings)
        return self._services

    @property
    def settings(self) -> Settings:
        """The settings. Raises BadRequest: the environment does not say where."""
        try:
            return read_settings(self.env)
        except ServiceError as error:
            raise BadRequest(
                "environment",
                "LUSTRUM_*",
                f"{error}; set what `terraform output -json "
                "environment` prints, or give that as a file: lustrum --env FILE ...",
            ) from None

    @property
    def settings_if_any(self) -> Settings:
        """The settings, or placeholders when no control plane is named."""
        return self.settings if self.env.get("LUSTRUM_PROJECT") else UNKNOWN

    def load(self, run_id: str) -> Run:
        """Return a run. Raises NotFound, ServiceError."""
        return translated(lambda: self.services.ledger.load(run_id))

    def known(self, run_id: str) -> Run:
        """Return a run that must exist. Raises BadRequest."""
        try:
            return self.load(run_id)
        except NotFound:
            raise BadRequest(
                "run_id", run_id, "is not a run known here; see `lustrum list`"
            ) from None


class Commands(TyperGroup):
    """A group whose errors are one line: exit 2 for bad input, 1 for failure."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parse the arguments before the command."""
        return _told(lambda: super(Commands, self).make_context(*args, **more))

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's arguments and run it."""
        return _told(lambda: super(Commands, self).invoke(ctx))


def session_of(context: typer.Context) -> Session:
    """Return the session of this command."""
    found = context.find_root().obj
    assert isinstance(found, Session)
    return found


def read_environment(context: typer.Context, path: str | None) -> None:
    """Make the session, with the variables of a file below those of the environment, and price
    as they say.
    """
    if not isinstance(context.obj, Session):
        context.obj = Session()
    _read_variables(context.obj, path)
    read_prices(context.obj.env)


def _read_variables(session: Session, path: str | None) -> None:
    automatic = path is None
    if path is None:
        place = found_environment(session.env)
        if place is None:
            return
        path = str(place)
    given = _variables(path)
    # Half of one project and half of another: runs started here and looked for there.
    other = session.env.get("LUSTRUM_PROJECT", given.get("LUSTRUM_PROJECT"))
    if automatic and other != given.get("LUSTRUM_PROJECT"):
        return
    session.env = {**given, **session.env}


def _variables(path: str) -> dict[str, str]:
    try:
        found = json.loads(Path(path).read_text())
        return {
            str(key): one if isinstance(one, str) else json.dumps(one)
            for key, one in found.items()
        }
    except OSError as error:
        raise BadRequest("--env", path, str(error.strerror)) from None
    except (ValueError, AttributeError):
        raise BadRequest("--env", path, "must be a JSON object of LUSTRUM_* variables") from None


def read_file(path: str) -> Request:
    """Read a request from a file, or from standard input when it is ``-``.

    Raises:
        BadRequest: it cannot be read or is no request.
    """
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadRequest("FILE", path, str(error.strerror)) from None
    if not data.strip():
        # An empty message is the original recipe; an empty file is a pipe that broke.
        raise BadRequest("FILE", path, "is empty; write {} for the original recipe")
    return parse_request(data)


def read_start(path: str) -> StartRequest:
    """Read a request to start a run. Raises BadRequest."""
    request = read_file(path)
    if not isinstance(request, StartRequest):
        raise BadRequest("action", request.action, f"use `lustrum {request.action} RUN`")
    return request


def run_argument(text: str) -> str:
    """Return a run id. Raises BadRequest."""
    if not names.is_run_id(text):
        raise BadRequest("RUN", text, "must be a run id such as rl-4f0c2a9d31; see `lustrum list`")
    return text


def console() -> Console:
    """Return the console of results; made for each command, so that redirected output is met."""
    return Console(highlight=False, soft_wrap=True)


def translated(call: Callable[[], T]) -> T:
    """Call Google's client library; its errors become ServiceError."""
    try:
        return call()
    except ServiceError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith("google."):
            raise
        raise _as_service_error(error) from None


def _as_service_error(error: Exception) -> ServiceError:
    kind = type(error).__name__
    text = f"{kind}: {' '.join(str(error).split())[:300]}"
    if kind in _PASSING:
        return ServiceError(Failure.INFRA_TRANSIENT, text, retryable=True)
    if kind in ("DefaultCredentialsError", "RefreshError"):
        text += "; run `gcloud auth application-default login`"
    elif kind in ("Forbidden", "PermissionDenied", "Unauthenticated"):
        text += "; run `lustrum doctor` to see which role is missing"
    return ServiceError(Failure.ACCESS, text)


def _told(call: Callable[[], Any]) -> Any:
    try:
        return translated(call)
    except BadRequest as error:
        _fail(str(error), BAD_INPUT)
    except CodeRefused as error:
        _fail(f"--code: {error}", BAD_INPUT)
    except ServiceError as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except Exception as error:
        # A usage error of the command line parser, wherever typer keeps its class.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "lustrum"
        _fail(f"{message().rstrip('.')} (see {where} --help)", BAD_INPUT)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo("error: " + " ".join(text.split()), err=True)
    raise typer.Exit(code)
