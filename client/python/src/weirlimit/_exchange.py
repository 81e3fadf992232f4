"""One batch of checks, and the nodes that are asked about it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Optional

from ._http import FAILURES, Connection, first_readable
from ._model import AccessError, Answer, Check, GRPCPortError, Overloaded, decode, undecided
from ._nodes import Node, Nodes

INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 3, 8  # codes of gRPC


class Pending:
    """A check that waits for its answer."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.body = check.encode()
        self.since = time.monotonic()
        self.future: Future[Answer] = Future()


class Refused(Exception):
    """A node refused a batch as invalid, and has counted nothing."""


class Exchange:
    """Asks nodes about batches, one batch at a time. Belongs to one thread."""

    def __init__(self, nodes: Nodes, timeout: float, fail_open: bool) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._fail_open = fail_open
        self._idle: dict[Node, Connection] = {}

    def ask(self, batch: Sequence[Pending]) -> list[Answer | Exception]:
        """An answer or an error for every check, within about the timeout."""
        try:
            return self._ask(batch)
        except Refused as error:
            if len(batch) == 1:
                return [ValueError(str(error).removeprefix("requests[0]."))]
        half = len(batch) // 2
        return self.ask(batch[:half]) + self.ask(batch[half:])

    def close(self) -> None:
        for connection in self._idle.values():
            connection.close()
        self._idle.clear()

    def _ask(self, batch: Sequence[Pending]) -> list[Answer | Exception]:
        """Asks one node, and another one if the first is silent for half of the time. An answer of the
        first that comes later counts as well: a check that either allows is allowed, as both have counted it."""
        round_ = _Round(self, batch)
        try:
            return round_.run()
        finally:
            for connection in round_.connections:
                connection.close()  # nothing reads what may still come

    def connect(self, node: Node, body: bytes, until: float) -> Connection:
        """A connection on which the body was sent."""
        kept = self._idle.pop(node, None)
        if kept is not None:
            try:
                kept.send(body, self._nodes.cluster, until)
                return kept
            except OSError:
                kept.close()  # the node has closed what was idle
        fresh = Connection(node, self._nodes.credentials, until)
        try:
            fresh.send(body, self._nodes.cluster, until)
        except BaseException:
            fresh.close()
            raise
        return fresh

    def keep(self, connection: Connection) -> None:
        if connection.open:
            self._idle[connection.node] = connection


def probe(nodes: Nodes, node: Node, timeout: float) -> None:
    """Sends a node a request without checks, and notes whether it replies to it."""
    until = time.monotonic() + timeout
    try:
        with contextlib.closing(Connection(node, nodes.credentials, until)) as connection:
            connection.send(b'{"requests":[]}', nodes.cluster, until)
            message = connection.receive(until)
    except AccessError as error:
        nodes.failed(node, str(error))
        return
    except (GRPCPortError, *FAILURES):
        nodes.failed(node)
        return
    if nodes.admit(node, connection.cluster) and message.get("code") in (INVALID_ARGUMENT, RESOURCE_EXHAUSTED):
        nodes.answered(node)
    else:
        nodes.failed(node)


class _Round:
    """What is under way for one batch."""

    def __init__(self, exchange: Exchange, batch: Sequence[Pending]) -> None:
        self.connections: list[Connection] = []
        self._exchange = exchange
        self._nodes = exchange._nodes
        self._batch = batch
        self._body = b'{"requests":[' + b",".join(p.body for p in batch) + b"]}"
        self._once = any(p.check.tokens < 0 for p in batch)  # given back twice it would free tokens in use
        self._due = time.monotonic() + exchange._timeout
        self._tried: list[Node] = []
        self._answers: dict[int, Answer] = {}

    def run(self) -> list[Answer | Exception]:
        self._start()
        while self.connections:
            may_ask_another = len(self.connections) == 1 and not self._once and self._nodes.has_other(self._tried)
            until = self._due - self._exchange._timeout / 2 if may_ask_another else self._due
            ready = first_readable(self.connections, until)
            if ready is None:
                for connection in self.connections:
                    self._nodes.failed(connection.node)
                if not may_ask_another or not self._start():
                    break
                continue
            self.connections.remove(ready)
            error = self._receive(ready)
            if error is not None:
                return [error] * len(self._batch)
            if len(self._answers) == len(self._batch) and all(a.allowed for a in self._answers.values()):
                break
        refusal = None if self._answers else self._nodes.refusal()
        if refusal is not None:
            return [refusal] * len(self._batch)
        return [self._answers.get(i) or undecided(self._exchange._fail_open) for i in range(len(self._batch))]

    def _start(self) -> bool:
        """Asks a node that was not asked yet, if there is time and one that can be reached."""
        while (left := self._due - time.monotonic()) > 0 or not self._tried:
            node = self._nodes.choose(self._tried)
            if node is None:
                return False
            self._tried.append(node)
            wait = left / 2 if self._nodes.has_other(self._tried) else left
            try:
                self.connections.append(self._exchange.connect(node, self._body, time.monotonic() + wait))
                return True
            except AccessError as error:
                self._nodes.failed(node, str(error))
            except OSError:
                self._nodes.failed(node)
        return False

    def _receive(self, connection: Connection) -> Optional[Exception]:
        """Takes a reply in. Returns the error of all checks, if the reply is one."""
        node, idle = connection.node, connection.used
        try:
            message = connection.receive(self._due)
        except GRPCPortError:
            connection.close()
            raise
        except AccessError as error:
            connection.close()
            self._nodes.failed(node, str(error))  # nothing was counted
            if not self.connections:
                self._start()
            return None
        except FAILURES:
            connection.close()
            if idle and not self._once and self._again(node):
                return None
            self._nodes.failed(node)
            if not self._once and not self.connections:
                self._start()
            return None
        self._exchange.keep(connection)
        if not self._nodes.admit(node, connection.cluster):
            self._nodes.failed(node)  # nothing was counted in the client's cluster
            if not self.connections:
                self._start()
            return None
        return self._take(node, message)

    def _again(self, node: Node) -> bool:
        """Asks a node again that has closed an idle connection."""
        try:
            self.connections.append(self._exchange.connect(node, self._body, self._due))
        except OSError:
            return False
        return True

    def _take(self, node: Node, message: dict[str, Any]) -> Optional[Exception]:
        code = message.get("code")
        if code == INVALID_ARGUMENT:
            raise Refused(str(message.get("message")))
        if code == RESOURCE_EXHAUSTED:
            return Overloaded(str(message.get("message")))
        try:
            answers = [decode(response) for response in message["responses"]]
            if len(answers) != len(self._batch):
                raise ValueError(f"{len(answers)} answers to {len(self._batch)} checks")
        except (AttributeError, KeyError, TypeError, ValueError):
            self._nodes.failed(node)
            if not self._once and not self.connections:
                self._start()
            return None
        self._nodes.answered(node)
        for i, answer in enumerate(answers):
            if answer.allowed or i not in self._answers:
                self._answers[i] = answer
        return None
