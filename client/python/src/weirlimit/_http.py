"""Connections on which everything ends by one moment, given as time.monotonic()."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, Optional

from ._model import AccessError, GRPCPortError
from ._nodes import Node
from ._tls import Credentials, explain

CLUSTER = "Weir-Cluster"  # a header field: the cluster that is meant, and that of the node that replies
MAX_REPLY = 4 << 20  # bytes
HTTP2_SETTINGS = 4  # the type of the first frame that a server of HTTP/2 sends
WANTS_TLS = b"Client sent an HTTP request to an HTTPS server"  # a node's reply to what is not encrypted

# What can go wrong with a node. A reply that is no JSON is a ValueError.
FAILURES = (OSError, http.client.HTTPException, ValueError)


class Connection:
    """A connection to a node. One request at a time; not safe for threads."""

    def __init__(self, node: Node, credentials: Credentials, until: float) -> None:
        self.node = node
        self.cluster: Optional[str] = None  # that the node has named in its last reply
        self.used = False  # it has served a request, so the node may have closed it meanwhile
        self._fields = credentials.fields
        self._socket = _Socket(node, credentials.context(), until)
        self._http = http.client.HTTPConnection(node.host, node.port)
        self._http.sock = self._socket  # it has what is used of one

    def send(self, body: bytes, cluster: str, until: float) -> None:
        self._socket.until = until
        fields = {"Content-Type": "application/json", CLUSTER: cluster, **self._fields}
        self._http.request("POST", "/v1/check:batch", body, fields)
        self._socket.flush()

    def receive(self, until: float) -> dict[str, Any]:
        """The reply's message. It raises one of FAILURES, AccessError or GRPCPortError."""
        self._socket.until = until
        response = self._http.getresponse()
        self.cluster = response.getheader(CLUSTER)
        reply = response.read(MAX_REPLY + 1)
        if len(reply) > MAX_REPLY:
            raise ValueError(f"{self.node.address} replied with more than {MAX_REPLY} bytes")
        if response.status == 400 and reply.startswith(WANTS_TLS):
            raise AccessError(f"{self.node.address} has TLS: give tls")
        message = json.loads(reply)
        if response.status in (401, 403) and isinstance(message, dict):
            raise AccessError(f"{self.node.address}: {message.get('detail') or message.get('message')}")
        if not isinstance(message, dict):
            raise ValueError(f"{self.node.address} replied with {message!r:.100}")
        self.used = True
        return message

    @property
    def open(self) -> bool:
        return self._http.sock is not None

    def close(self) -> None:
        self._http.close()
        self._socket.end()

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_reply(self) -> bool:
        """Whether what has come is of the reply, or its end, and not of TLS itself."""
        return self._socket.has_data()


def first_readable(connections: Sequence[Connection], until: float) -> Optional[Connection]:
    """The first connection on which something has come by then. If this thread is late it still
    looks once: a reply that is there is no silence."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        late = False
        while True:
            left = until - time.monotonic()
            for key, _ in selector.select(max(left, 0)):
                found: Connection = key.data
                if found.has_reply():
                    return found
            if late:
                return None
            late = left <= 0 or time.monotonic() >= until


class _Socket:
    """The part of a socket that http.client uses. The timeout of a socket alone would begin again with
    every byte."""

    def __init__(self, node: Node, context: Optional[ssl.SSLContext], until: float) -> None:
        self.until = until
        self._node = node
        self._sent: list[bytes] = []  # until flush
        self._begun = False  # something was received
        self._readers = 0  # files that read from here
        self._closed = False  # by http.client, which may have a file go on
        self._early = b""  # received by has_data, and not read
        self._failure: Optional[Exception] = None  # of has_data
        self._socket = socket.create_connection((node.host, node.port), max(until - time.monotonic(), 0.001))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._encrypt(context)
        except BaseException:
            self._socket.close()
            raise

    def _encrypt(self, context: ssl.SSLContext) -> None:
        encrypted = context.wrap_socket(self._socket, server_hostname=self._node.host, do_handshake_on_connect=False)
        self._socket = encrypted
        self._arm()
        try:
            encrypted.do_handshake()
        except ssl.SSLError as error:
            raise explain(self._node.address, error) from error

    def _arm(self) -> None:
        self._socket.settimeout(max(self.until - time.monotonic(), 0))  # 0 takes what is there

    def sendall(self, data: bytes) -> None:
        self._sent.append(data)

    def flush(self) -> None:
        """Sends the request, in as few packets as it takes."""
        data = memoryview(b"".join(self._sent))
        self._sent.clear()
        try:
            while data:
                self._arm()
                data = data[self._socket.send(data) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.receive(bytearray(16))  # which says so if this is the port of gRPC, or TLS is refused
            raise

    def has_data(self) -> bool:
        if not isinstance(self._socket, ssl.SSLSocket) or self._early:
            return True
        self._socket.settimeout(0)
        try:
            self._early = self._socket.recv(1 << 16)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except ssl.SSLError as error:
            self._failure = explain(self._node.address, error)
        except OSError as error:
            self._failure = error
        return True

    def receive(self, buffer: Any) -> int:
        if self._failure is not None:
            raise self._failure
        if self._early:
            size = min(len(buffer), len(self._early))
            buffer[:size], self._early = self._early[:size], self._early[size:]
            return size
        self._arm()
        try:
            size = self._socket.recv_into(buffer)
        except ssl.SSLError as error:
            raise explain(self._node.address, error) from error
        if not self._begun and _is_http2(buffer, size):
            raise GRPCPortError(self._node.address)
        self._begun = True
        return size

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def released(self) -> None:
        self._readers -= 1
        if self._closed and self._readers == 0:
            self.end()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._closed = True
        if self._readers == 0:
            self.end()

    def end(self) -> None:
        self._socket.close()


def _is_http2(start: Any, size: int) -> bool:
    """Whether the first bytes of a reply are a frame of settings of HTTP/2."""
    return size >= 9 and bytes(start[:2]) == b"\0\0" and bool(start[3] == HTTP2_SETTINGS)


class _Reader(io.RawIOBase):
    def __init__(self, source: _Socket) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.receive(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._source.released()
