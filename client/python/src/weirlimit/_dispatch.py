"""The queue of checks, and the threads that ask nodes about them."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Optional

from ._denials import Denials
from ._exchange import Exchange, Pending, probe
from ._model import Answer, Check, Overloaded
from ._nodes import REST, Nodes
from ._tls import Credentials

MAX_BATCH = 1000  # checks; a node refuses more
MAX_BODY = 200 << 10  # bytes of them; a node refuses 256 KiB
IN_FLIGHT = 4  # requests at once, each by a thread
MAX_QUEUE = 10_000  # checks that wait to be sent


class Dispatcher:
    """Answers checks. What is submitted while requests are in flight travels in the next one. Safe for
    threads, and of use after a fork."""

    def __init__(
        self, nodes: tuple[str, ...], timeout: float, fail_open: bool, remember: float, cluster: str, credentials: Credentials
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout: {timeout!r} is not above 0")
        if remember < 0:
            raise ValueError(f"remember_denials: {remember!r} is below 0")
        Nodes(nodes, cluster)  # raises for bad addresses
        self._addresses, self._cluster, self._credentials = nodes, cluster, credentials
        self._timeout, self._fail_open, self._remember = timeout, fail_open, remember
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._nodes = Nodes(self._addresses, self._cluster, self._credentials)
        self._denials = Denials(self._remember)
        self._lock = threading.Condition()
        self._queue: deque[Pending] = deque()  # guarded by the lock; at most MAX_QUEUE
        self._threads = 0  # guarded by the lock; at most IN_FLIGHT
        self._idle = 0  # threads that wait for checks; guarded by the lock

    def submit(self, check: Check) -> Future[Answer]:
        """The answer, or the error: ValueError, Overloaded, AccessError or GRPCPortError."""
        if self._pid != os.getpid():
            self._reset()  # the threads have stayed in the parent
        pending = Pending(check)
        known = self._denials.find(check)
        if known is not None:
            pending.future.set_result(known)
            return pending.future
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if len(self._queue) >= MAX_QUEUE:
                raise Overloaded(f"{MAX_QUEUE} checks of this process wait already")
            self._queue.append(pending)
            if self._idle > 0:
                self._lock.notify()
            elif self._threads < IN_FLIGHT:
                self._threads += 1
                threading.Thread(target=self._serve, args=(self._pid,), name="weirlimit", daemon=True).start()
        return pending.future

    def close(self) -> None:
        """Ends the threads. Checks that wait are answered first."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def _serve(self, pid: int) -> None:
        exchange = Exchange(self._nodes, self._timeout, self._fail_open)
        try:
            while self._pid == pid and (batch := self._next()) is not None:
                self._settle(exchange, batch)
        finally:
            exchange.close()

    def _next(self) -> Optional[list[Pending]]:
        """The checks of the next request; None if there will be none."""
        with self._lock:
            while not self._queue:
                if self._closed:
                    self._threads -= 1
                    return None
                self._idle += 1
                self._lock.wait()
                self._idle -= 1
            batch = [self._queue.popleft()]
            once, size = batch[0].check.tokens < 0, len(batch[0].body)
            while self._queue and len(batch) < MAX_BATCH:
                pending = self._queue[0]
                size += len(pending.body) + 1
                if size > MAX_BODY or (pending.check.tokens < 0) != once:
                    break
                batch.append(self._queue.popleft())
        return batch

    def _settle(self, exchange: Exchange, batch: list[Pending]) -> None:
        now = time.monotonic()
        wanted = []
        for pending in batch:
            if not pending.future.set_running_or_notify_cancel():
                continue  # must not be counted
            if now - pending.since > self._timeout:
                pending.future.set_exception(Overloaded(f"not sent within {self._timeout} s: this process, or the nodes, have too much to do"))
                continue
            wanted.append(pending)
        if not wanted:
            return
        self._probe()
        try:
            outcomes = exchange.ask(wanted)
        except BaseException as error:  # a bug: the callers get it
            outcomes = [error if isinstance(error, Exception) else RuntimeError(str(error))] * len(wanted)
        for pending, outcome in zip(wanted, outcomes):
            if isinstance(outcome, Exception):
                pending.future.set_exception(outcome)
                continue
            self._denials.note(pending.check, outcome)
            pending.future.set_result(outcome)

    def _probe(self) -> None:
        """Finds out whether a node that has rested is back, in a thread of its own: a check would wait for it."""
        node = self._nodes.rested()
        if node is not None:
            wait = min(self._timeout, REST)  # so that a node is probed by one thread at most
            threading.Thread(target=probe, args=(self._nodes, node, wait), name="weirlimit-probe", daemon=True).start()
