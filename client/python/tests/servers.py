"""What the tests of several files need: servers that are no node, and names."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from typing import Callable, Iterator

DECIDED = {"SOURCE_OWNER", "SOURCE_RELAYED", "SOURCE_LENT"}  # as exact as each other
FAIL = 20.0  # seconds; far above every timeout below

Handler = Callable[[socket.socket], None]


def name() -> str:
    """A user that no test has used."""
    return str(uuid.uuid4())


@contextlib.contextmanager
def server(handler: Handler) -> Iterator[str]:
    """A server that has the handler called with every connection. Yields its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=handler, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]


def unused() -> str:
    """An address on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:%d" % listener.getsockname()[1]


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def silent(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    wait(FAIL)


def dripping(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    with contextlib.suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10000:
            connection.sendall(bytes([byte]))
            wait(0.01)


def replying(status: str, body: bytes) -> Handler:
    def reply(connection: socket.socket) -> None:
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body))

    return reply
