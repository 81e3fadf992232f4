"""What is asked and answered, without any input or output."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

# Bounds of a node, in bytes of UTF-8 unless it says otherwise. What is above them is refused here,
# since an invalid check would have a node refuse the whole batch that it travels in.
MAX_NAME = 64
MAX_VALUE = 256
MAX_ATTRIBUTES = 14  # entries
MAX_TOKENS = 1 << 31

_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)s")


@dataclass(frozen=True)
class Answer:
    """The decision on a check. Times are in seconds."""

    allowed: bool
    source: str  # of the decision, such as SOURCE_OWNER
    rule_id: str = ""  # the rule that decided; empty if none did
    limit: int = 0  # tokens per window
    remaining: int = 0  # tokens that are left of the limit
    retry_after: Optional[float] = None  # if denied; None if no wait helps
    delay: float = 0.0  # how long an allowed call has to wait for its turn


@dataclass(frozen=True)
class Check:
    """A request to allow something now. It raises ValueError for what nodes refuse."""

    identifier_type: str  # such as "user"
    identifier: str  # such as "alice"
    endpoint: str = ""
    tokens: int = 1  # negative ones are given back
    domain: str = ""  # of the rules; "" means "default"
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _measure("identifier_type", self.identifier_type, 1, MAX_NAME)
        _measure("identifier", self.identifier, 1, MAX_VALUE)
        _measure("endpoint", self.endpoint, 0, MAX_VALUE)
        _measure("domain", self.domain, 0, MAX_NAME)
        if self.tokens == 0 or not -MAX_TOKENS <= self.tokens <= MAX_TOKENS:
            raise ValueError(f"tokens: {self.tokens} is 0, or not between {-MAX_TOKENS} and {MAX_TOKENS}")
        if len(self.attributes) > MAX_ATTRIBUTES:
            raise ValueError(f"attributes: {len(self.attributes)} are more than {MAX_ATTRIBUTES}")
        for key, value in self.attributes.items():
            _measure("attributes: a key", key, 1, MAX_NAME)
            _measure(f"attributes[{key!r}]", value, 0, MAX_VALUE)
            if key in (self.identifier_type, "endpoint"):
                raise ValueError(f"attributes: {key!r} is the identifier_type, or the endpoint")

    def encode(self) -> bytes:
        """The check in JSON, as a node takes it."""
        message: dict[str, Any] = {
            "identifier_type": self.identifier_type,
            "identifier": self.identifier,
            "tokens_requested": self.tokens,
        }
        for name, value in (("endpoint", self.endpoint), ("domain", self.domain), ("attributes", dict(self.attributes))):
            if value:
                message[name] = value
        return json.dumps(message, separators=(",", ":")).encode()

    def key(self) -> tuple[object, ...]:
        """Equal for checks that differ in nothing but their tokens."""
        return self.domain, self.identifier_type, self.identifier, self.endpoint, frozenset(self.attributes.items())


class AccessError(Exception):
    """No node takes a check of this client: it has shown neither a certificate nor an access token with the role for it, or TLS
    with the nodes fails."""


class Denied(Exception):
    """A limit has no room; or no node could decide, and the client fails closed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"denied by {answer.rule_id or answer.source}, retry after {answer.retry_after} s")
        self.answer = answer
        self.retry_after = answer.retry_after


class Overloaded(Exception):
    """The nodes, or this process, have too much to do for the check. It is not allowed, since overload
    would be a way around the limits otherwise."""


class GRPCPortError(Exception):
    """A node was given by the address of its gRPC. Give that of its HTTP."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"{node} speaks gRPC, not HTTP: give the HTTP address of the node, which `weir serve` prints (port 8080 by default)"
        )


def undecided(fail_open: bool) -> Answer:
    """The client's own answer."""
    return Answer(fail_open, "SOURCE_FAIL_OPEN" if fail_open else "SOURCE_FAIL_CLOSED")


def decode(message: Mapping[str, Any]) -> Answer:
    """An answer from a node's JSON. It raises ValueError if it is none."""
    allowed = message.get("allowed")
    if not isinstance(allowed, bool):
        raise ValueError(f"allowed: {allowed!r} is no boolean")
    retry_after = message.get("retry_after")
    return Answer(
        allowed,
        str(message.get("source", "")),
        str(message.get("rule_id", "")),
        int(message.get("limit") or 0),
        int(message.get("remaining_tokens") or 0),
        None if allowed or retry_after is None else _seconds(retry_after),
        _seconds(message.get("delay") or "0s"),
    )


def _seconds(duration: object) -> float:
    """A duration as JSON has it, such as "1.5s"."""
    match = _DURATION.fullmatch(str(duration))
    if match is None:
        raise ValueError(f"{duration!r} is no duration")
    return float(match.group(1))


def _measure(name: str, text: str, least: int, most: int) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{name}: {text!r} is no str")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if size < least:
        raise ValueError(f"{name}: must not be empty")
    if size > most:
        raise ValueError(f"{name}: {size} bytes are more than {most}")
