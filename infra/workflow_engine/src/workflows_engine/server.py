"""A running engine behind its APIs: REST with callbacks, and gRPC."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web

from workflows_engine import grpc_api
from workflows_engine.api import Api
from workflows_engine.engine import Engine
from workflows_engine.rest import application


class Server:
    """Serves an engine; ``engine``, ``url`` and ``grpc_target`` are there once it is started.

    Callback URLs of executions begin with ``url``, so plain HTTP reaches them.
    """

    engine: Engine

    def __init__(self, make_engine: Callable[[str], Engine]) -> None:
        """``make_engine`` gets the base URL that callbacks must have."""
        self._make_engine = make_engine
        self._runner: web.AppRunner | None = None
        self._grpc: Any = None
        self.url = ""
        self.grpc_target = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0, grpc_port: int = 0) -> None:
        """Listen; port 0 takes a free one. Raises OSError when a port is taken."""
        # The engine must know its own address, so the socket comes first.
        listener = socket.create_server((host, port))
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        self.engine = self._make_engine(self.url)
        api = Api(self.engine)
        self._runner = web.AppRunner(application(self.engine, api), access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        self._grpc, grpc_bound = await grpc_api.serve(api, host, grpc_port)
        self.grpc_target = f"{host}:{grpc_bound}"

    async def stop(self) -> None:
        """Cancel the executions and close both servers."""
        await self.engine.close()
        if self._grpc is not None:
            await self._grpc.stop(grace=0)
        if self._runner is not None:
            await self._runner.cleanup()
