"""Limits what a Python program does, by asking nodes of Weir over HTTP.

Copy this file; it needs Python 3.9 and nothing else.

    weir = Weir("127.0.0.1:8080", "127.0.0.1:8081")

    @weir.limit("user", lambda user, text: user)
    def post(user, text): ...

    try:
        post("alice", "hello")
    except Denied as denied:
        ...  # come back in denied.retry_after seconds

A check takes no longer than its timeout. If no node has answered by then, it is let
through, with the source SOURCE_FAIL_OPEN; or it is denied, with fail_open=False.
"""

import functools
import http.client
import io
import json
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Callable, Optional


@dataclass(frozen=True)
class Answer:
    """What a node has answered. Times are in seconds."""

    allowed: bool
    source: str  # who has decided, such as SOURCE_OWNER
    rule_id: str = ""  # the rule that decided; empty if none did
    remaining: int = 0  # tokens of its limit
    retry_after: Optional[float] = None  # if denied; None if no wait helps
    delay: float = 0.0  # how long an allowed call has to wait for its turn


class Denied(Exception):
    """A limit has no room."""

    def __init__(self, answer: Answer):
        super().__init__(f"denied by {answer.rule_id or answer.source}, retry after {answer.retry_after} s")
        self.answer = answer
        self.retry_after = answer.retry_after


class Overloaded(Exception):
    """Weir has no time for the check. It is not let through: that would be a way in."""


class Weir:
    """Asks nodes, which are given as host:port of their HTTP, one after the other.

    It may be used by several threads; each has connections of its own.
    """

    def __init__(self, *nodes: str, timeout: float = 0.1, fail_open: bool = True, domain: str = ""):
        if not nodes or timeout <= 0:
            raise ValueError("nodes: give at least one, and a timeout above 0")
        self._nodes = [_host_port(node) for node in nodes]
        self._timeout = timeout
        self._fail_open = fail_open
        self._domain = domain
        self._local = threading.local()

    def limit(self, identifier_type: str, identifier: Callable[..., str], *, endpoint: str = "", tokens: int = 1):
        """A decorator: every call of the function is checked, waits for its turn if a rule
        books one, or raises Denied. identifier is given the arguments of the call. The
        endpoint is the function's name unless it is given."""

        def decorate(function):
            @functools.wraps(function)
            def limited(*args, **kwargs):
                answer = self.check(identifier_type, identifier(*args, **kwargs), endpoint or function.__name__, tokens)
                if not answer.allowed:
                    raise Denied(answer)
                time.sleep(answer.delay)
                return function(*args, **kwargs)

            return limited

        return decorate

    def check(self, identifier_type: str, identifier: str, endpoint: str = "", tokens: int = 1, **attributes: str) -> Answer:
        """Asks whether one thing may be done now, and counts it if so. It raises ValueError
        for what nodes refuse, and Overloaded. Of two nodes that are asked both may count."""
        body = json.dumps({
            "identifier_type": identifier_type, "identifier": identifier, "endpoint": endpoint,
            "tokens_requested": tokens, "domain": self._domain, "attributes": attributes,
        }).encode()
        due = time.monotonic() + self._timeout
        first = random.randrange(len(self._nodes))
        for i in range(len(self._nodes)):
            left = due - time.monotonic()
            until = due if i == len(self._nodes) - 1 else due - left / 2  # leave time for another
            try:
                message = json.loads(self._ask(self._nodes[(first + i) % len(self._nodes)], body, until))
            except (OSError, http.client.HTTPException, ValueError):
                continue
            if not isinstance(message, dict):
                continue
            if "allowed" in message:
                return _answer(message)
            if message.get("code") == 3:  # INVALID_ARGUMENT of gRPC
                raise ValueError(message.get("message"))
            if message.get("code") == 8:  # RESOURCE_EXHAUSTED
                raise Overloaded(message.get("message"))
        return Answer(self._fail_open, "SOURCE_FAIL_OPEN" if self._fail_open else "SOURCE_FAIL_CLOSED")

    def _ask(self, node, body: bytes, until: float):
        """Posts the body and returns that of the reply, by a moment of the monotonic clock."""
        connections = self._connections()
        kept = connections.pop(node, None)
        if kept is not None:
            try:
                return self._post(connections, node, kept, body, until)
            except (ConnectionError, http.client.RemoteDisconnected):
                pass  # the node has closed what was idle
        fresh = http.client.HTTPConnection(*node)
        fresh.sock = _Socket(node, until)
        return self._post(connections, node, fresh, body, until)

    def _post(self, connections, node, connection, body: bytes, until: float):
        connection.sock.until = until
        try:
            connection.request("POST", "/v1/check", body, {"Content-Type": "application/json"})
            reply = connection.getresponse().read()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:  # the node keeps it, too
            connections[node] = connection
        return reply

    def _connections(self):
        """The idle connections of this thread, by node."""
        if getattr(self._local, "pid", None) != os.getpid():  # a fork must not share them
            self._local.pid, self._local.connections = os.getpid(), {}
        return self._local.connections


class _Socket:
    """A connection of which everything ends by one moment of the monotonic clock: a timeout
    of a socket alone begins afresh with every byte."""

    def __init__(self, node, until: float):
        self.until = until
        self._socket = socket.create_connection(node, self._left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the check is over")
        return left

    def sendall(self, data: bytes):
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def receive(self, buffer) -> int:
        self._socket.settimeout(self._left())
        return self._socket.recv_into(buffer)

    def makefile(self, _mode):
        return io.BufferedReader(_Reader(self))

    def close(self):
        self._socket.close()

    def __del__(self):
        if hasattr(self, "_socket"):  # it was connected
            self.close()


class _Reader(io.RawIOBase):
    def __init__(self, source: _Socket):
        super().__init__()
        self._source = source

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._source.receive(buffer)


def _host_port(node: str):
    host, colon, port = node.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"nodes: {node!r} is not host:port")
    return host.strip("[]"), int(port)


def _answer(message) -> Answer:
    retry_after = message.get("retry_after")
    return Answer(
        message["allowed"], message.get("source", ""), message.get("rule_id", ""), message.get("remaining_tokens", 0),
        None if retry_after is None else _seconds(retry_after), _seconds(message.get("delay") or "0s"),
    )


def _seconds(duration: str) -> float:
    """A duration as JSON has it, such as "1.5s"."""
    return float(duration.removesuffix("s"))
