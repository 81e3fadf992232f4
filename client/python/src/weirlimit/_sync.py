"""The client for threads."""

from __future__ import annotations

import functools
import time
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

from ._dispatch import Dispatcher
from ._model import Answer, Check, Denied
from ._tls import TLS, Credentials

T = TypeVar("T")


class Weir:
    """Asks nodes, which are given as host:port of their HTTP. Make one per process; it is safe for threads,
    and of use after a fork.

    timeout: seconds for the nodes to answer, from when a check is sent. A check that is not sent within
    that time raises Overloaded.
    fail_open: what happens if no node answers: the check is allowed, or denied.
    domain: of the rules; "" means "default".
    remember_denials: for how many seconds at most a denial is remembered, and the same check denied
    without asking a node. It takes as long for a reset to be seen. 0 asks always.
    cluster: the fingerprint of the nodes' cluster, which GET /v1/health has as "cluster". Nodes of another
    cluster are not used, at any address. "" learns the cluster from the nodes.
    tls: how connections are encrypted, if the nodes have TLS.
    access_token: shown with every request, instead of a certificate; it needs tls. "" shows none.
    """

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

    def check(self, identifier_type: str, identifier: str, endpoint: str = "", tokens: int = 1, **attributes: str) -> Answer:
        """Asks whether one thing may be done now, and counts it if so. It raises ValueError for what
        nodes refuse, Overloaded, AccessError and GRPCPortError. If two nodes are asked, both may count it."""
        check = Check(identifier_type, identifier, endpoint, tokens, self._domain, attributes)
        return self._dispatcher.submit(check).result()

    def limit(
        self, identifier_type: str, identifier: Callable[..., str], *, endpoint: str = "", tokens: int = 1
    ) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """A decorator: every call of the function is checked, waits for its turn if a rule books
        one, or raises Denied. identifier is given the arguments of the call. The endpoint is the
        function's name unless it is given."""

        def decorate(function: Callable[..., T]) -> Callable[..., T]:
            @functools.wraps(function)
            def limited(*args: Any, **kwargs: Any) -> T:
                answer = self.check(identifier_type, identifier(*args, **kwargs), endpoint or function.__name__, tokens)
                if not answer.allowed:
                    raise Denied(answer)
                if answer.delay > 0:
                    time.sleep(answer.delay)
                return function(*args, **kwargs)

            return limited

        return decorate

    def close(self) -> None:
        """Ends the client's threads. It need not be called at the end of a process."""
        self._dispatcher.close()

    def __enter__(self) -> Weir:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
