"""Denials that are remembered."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Optional

from ._model import Answer, Check

MAX_DENIALS = 10_000


class Denials:
    """Remembers denials until their retry_after, and for `longest` seconds at most: a reset or a change
    of rules takes effect then. Safe for threads."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._lock = threading.Lock()
        # By key: the tokens, the answer and when it came. Guarded by the lock; at most MAX_DENIALS.
        self._denied: OrderedDict[tuple[object, ...], tuple[int, Answer, float]] = OrderedDict()

    def find(self, check: Check) -> Optional[Answer]:
        """The denial that holds for a check: that of the same one, since another cost has another wait."""
        if not self._denied:
            return None
        key, now = check.key(), time.monotonic()
        with self._lock:
            tokens, answer, at = self._denied.get(key, (0, None, 0.0))
            if answer is None or answer.retry_after is None:
                return None
            age = now - at
            if age >= min(answer.retry_after, self._longest):
                del self._denied[key]
                return None
        if check.tokens != tokens:
            return None
        return replace(answer, retry_after=answer.retry_after - age)

    def note(self, check: Check, answer: Answer) -> None:
        """Remembers a denial. What gives tokens back ends one."""
        if answer.allowed and check.tokens > 0 or not answer.allowed and not answer.retry_after:
            return
        with self._lock:
            self._denied.pop(check.key(), None)
            if answer.allowed or self._longest <= 0:
                return
            if len(self._denied) >= MAX_DENIALS:
                self._denied.popitem(last=False)
            self._denied[check.key()] = check.tokens, answer, time.monotonic()
