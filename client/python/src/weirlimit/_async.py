"""The client for asyncio."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType
from typing import Any, Awaitable, Callable, Coroutine, Optional, TypeVar

from ._dispatch import Dispatcher
from ._model import Answer, Check, Denied
from ._tls import TLS, Credentials

T = TypeVar("T")


class AsyncWeir:
    """As Weir, for asyncio. Nodes are asked in threads, so that an event loop that is late does not take its
    lateness for that of a node. One client may serve several event loops."""

    def __init__(
        self,
        *nodes: str,
        timeout: float = 0.1,
        fail_open: bool = True,
        domain: str = "",
        remember_denials: float = 1.0,
        cluster: str = "",
        tls: Optional[TLS] = None,
        access_token: str = "",
    ) -> None:
        self._dispatcher = Dispatcher(nodes, timeout, fail_open, remember_denials, cluster, Credentials(tls, access_token))
        self._domain = domain

    async def check(self, identifier_type: str, identifier: str, endpoint: str = "", tokens: int = 1, **attributes: str) -> Answer:
        """As Weir.check. If it is canceled before it is sent, it is not counted."""
        check = Check(identifier_type, identifier, endpoint, tokens, self._domain, attributes)
        return await asyncio.wrap_future(self._dispatcher.submit(check))

    def limit(
        self, identifier_type: str, identifier: Callable[..., str], *, endpoint: str = "", tokens: int = 1
    ) -> Callable[[Callable[..., Awaitable[T]]], Callable[..., Coroutine[Any, Any, T]]]:
        """As Weir.limit, for coroutine functions."""

        def decorate(function: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
            name = endpoint or getattr(function, "__name__", "")

            @functools.wraps(function)
            async def limited(*args: Any, **kwargs: Any) -> T:
                answer = await self.check(identifier_type, identifier(*args, **kwargs), name, tokens)
                if not answer.allowed:
                    raise Denied(answer)
                if answer.delay > 0:
                    await asyncio.sleep(answer.delay)
                return await function(*args, **kwargs)

            return limited

        return decorate

    def close(self) -> None:
        """Ends the client's threads. It need not be called at the end of a process."""
        self._dispatcher.close()

    async def __aenter__(self) -> AsyncWeir:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
