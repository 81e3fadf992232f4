"""Which node to ask."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Collection
from typing import Optional

from ._model import AccessError
from ._tls import Credentials

FORGOTTEN = 60.0  # seconds without a node of the client's cluster, after which its nodes are taken to be another's
ANY = "any"
REST = 1.0  # seconds for which a node that has not answered is not asked


class Node:
    """The HTTP address of a node, as host:port."""

    def __init__(self, address: str) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"nodes: {address!r} is not host:port")
        self.address = address
        self.host = host.strip("[]")
        self.port = int(port)
        self.rests_until: Optional[float] = None  # None if it has answered last; guarded by Nodes
        self.cluster: Optional[str] = None  # that it has named last; guarded by Nodes
        self.refusal = ""  # the text of its AccessError if it has failed by one last; guarded by Nodes


class Nodes:
    """Remembers which nodes do not answer, and which cluster they belong to. The client's cluster is the one that it
    was given, or else the one that the most nodes have named; of several, the one that was so first. Safe for threads."""

    def __init__(self, addresses: Collection[str], cluster: str = "", credentials: Optional[Credentials] = None) -> None:
        if not addresses:
            raise ValueError("nodes: give at least one")
        if cluster and not re.fullmatch("[0-9a-f]{16}", cluster):
            raise ValueError(f"cluster: {cluster!r} is not 16 hexadecimal digits")
        self._nodes = [Node(address) for address in dict.fromkeys(addresses)]
        self.credentials = credentials or Credentials()
        self._given = bool(cluster)
        self._lock = threading.Lock()
        self._cluster = cluster or ANY  # guarded by the lock
        self._met = 0.0  # when a node of it has replied last; guarded by the lock

    def choose(self, tried: Collection[Node]) -> Optional[Node]:
        """A node that answers, as far as is known, and was not tried; or else one that has rested, for
        one caller. None if all others rest."""
        now = time.monotonic()
        with self._lock:
            fresh = [n for n in self._nodes if n not in tried]
            answering = [n for n in fresh if n.rests_until is None]
            if answering:
                return random.choice(answering)
            for node in random.sample(fresh, len(fresh)):
                if node.rests_until is not None and now >= node.rests_until:
                    node.rests_until = now + REST  # others do not wait for it meanwhile
                    return node
        return None

    def rested(self) -> Optional[Node]:
        """A node that has rested while another answers, for one caller, who finds out whether it is back. Checks
        are not sent to it before."""
        now = time.monotonic()
        with self._lock:
            if all(n.rests_until is not None for n in self._nodes):
                return None  # choose has checks sent to one
            for node in self._nodes:
                if node.rests_until is not None and now >= node.rests_until:
                    node.rests_until = now + REST
                    return node
        return None

    def has_other(self, tried: Collection[Node]) -> bool:
        """Whether a node answers that was not tried."""
        with self._lock:
            return any(n.rests_until is None and n not in tried for n in self._nodes)

    @property
    def cluster(self) -> str:
        """The client's cluster; "any" until a node has named one."""
        with self._lock:
            return self._cluster

    def admit(self, node: Node, cluster: Optional[str]) -> bool:
        """Whether a node that has named this cluster is of the client's. One that names none is of a version
        that does not, and is of no cluster that the client was given."""
        if cluster is None:
            return not self._given
        now = time.monotonic()
        with self._lock:
            node.cluster = cluster
            if cluster != self._cluster and self._moves(cluster, now):
                self._cluster = cluster
            if cluster != self._cluster:
                return False
            self._met = now
        return True

    def _moves(self, cluster: str, now: float) -> bool:
        own = sum(n.cluster == self._cluster for n in self._nodes)
        if self._given:
            return False
        if self._cluster == ANY:
            return True
        if own == 0:
            return now - self._met >= FORGOTTEN
        return sum(n.cluster == cluster for n in self._nodes) > own

    def answered(self, node: Node) -> None:
        with self._lock:
            node.rests_until, node.refusal = None, ""

    def failed(self, node: Node, refusal: str = "") -> None:
        with self._lock:
            node.rests_until, node.refusal = time.monotonic() + REST, refusal

    def refusal(self) -> Optional[AccessError]:
        """The error of one of the nodes, if all of them have refused this client last."""
        with self._lock:
            if all(n.refusal for n in self._nodes):
                return AccessError(self._nodes[0].refusal)
        return None
