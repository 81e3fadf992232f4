"""Tests against a real node, whose HTTP is at WEIR_HTTP, with the rules in rules.yaml."""

import contextlib
import os
import socket
import threading
import time
import unittest
import uuid

from weir import Denied, Overloaded, Weir

NODE = os.environ["WEIR_HTTP"]
FAIL = 20  # seconds; far above every timeout below


def name() -> str:
    """A user whom nobody has counted yet."""
    return str(uuid.uuid4())


@contextlib.contextmanager
def server(answer):
    """A server that has answer(connection) called with every connection. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]


def unused() -> str:
    """The address of nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:%d" % listener.getsockname()[1]


def silent(connection):
    connection.recv(1 << 16)
    threading.Event().wait(FAIL)


def dripping(connection):
    connection.recv(1 << 16)
    with contextlib.suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10000:
            connection.sendall(bytes([byte]))
            threading.Event().wait(0.01)


def replying(status: str, body: bytes):
    def reply(connection):
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body))

    return reply


class RealNode(unittest.TestCase):
    """What a real node decides."""

    def setUp(self):
        self.weir = Weir(NODE, timeout=FAIL)

    def test_limit(self):
        calls = []

        @self.weir.limit("user", lambda user, text: user)
        def post(user, text):
            """Posts."""
            calls.append(text)
            return text

        alice = name()
        self.assertEqual([post(alice, "a"), post(alice, text="b")], ["a", "b"])
        with self.assertRaises(Denied) as raised:
            post(alice, "c")
        self.assertEqual(raised.exception.answer.rule_id, "posts")
        self.assertTrue(0 < raised.exception.retry_after <= 86400, raised.exception.retry_after)
        self.assertEqual(post(name(), "d"), "d")
        self.assertEqual(calls, ["a", "b", "d"])
        self.assertEqual((post.__name__, post.__doc__), ("post", "Posts."))

    def test_check(self):
        alice = name()
        self.assertEqual(self.weir.check("user", alice, "post").remaining, 1)
        self.assertEqual(self.weir.check("user", alice, "other").source, "SOURCE_NO_RULE")
        above = self.weir.check("user", alice, "post", tokens=3)
        self.assertEqual((above.allowed, above.retry_after), (False, None), "it costs more than the limit")
        self.assertFalse(self.weir.check("user", alice, method="DELETE").allowed)

    def test_turns(self):
        turn = self.weir.limit("user", lambda user: user, endpoint="queue")(lambda user: time.monotonic())
        alice, begin = name(), time.monotonic()
        turn(alice)
        self.assertGreaterEqual(turn(alice) - begin, 0.1)  # the queue's pace

    def test_invalid(self):
        with self.assertRaisesRegex(ValueError, "identifier: must not be empty"):
            self.weir.check("user", "")

    def test_threads(self):
        alice, allowed = name(), []
        threads = [threading.Thread(target=lambda: allowed.append(self.weir.check("user", alice, "post").allowed)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(allowed), [False] * 6 + [True] * 2)

    def test_second_node(self):
        with server(silent) as mute:
            weir = Weir(unused(), mute, NODE, timeout=2)
            self.assertEqual({weir.check("user", name(), "post").source for _ in range(2)}, {"SOURCE_OWNER"})

    def test_idle_connection_that_was_closed(self):
        self.weir.check("user", name())
        self.assertEqual(len(self.weir._connections()), 1)
        for connection in self.weir._connections().values():
            connection.sock._socket.shutdown(socket.SHUT_RDWR)
        self.assertEqual(self.weir.check("user", name(), "post").source, "SOURCE_OWNER")


class NoNode(unittest.TestCase):
    """What happens if there is none."""

    def test_fail_open(self):
        for answer in silent, dripping, replying("200 OK", b"nonsense"), replying("500 Oops", b"{}"), replying("200 OK", b"7"):
            with self.subTest(answer), server(answer) as address:
                begin = time.monotonic()
                self.assertEqual(Weir(address, timeout=0.05).limit("user", lambda: "a")(lambda: 7)(), 7)
                self.assertLess(time.monotonic() - begin, FAIL / 4)
        self.assertEqual(Weir(unused()).check("user", "a").source, "SOURCE_FAIL_OPEN")

    def test_fail_closed(self):
        with self.assertRaises(Denied) as raised:
            Weir(unused(), fail_open=False).limit("user", lambda: "a")(self.fail)()
        self.assertEqual(raised.exception.answer.source, "SOURCE_FAIL_CLOSED")

    def test_overloaded(self):
        with server(replying("429 Too Many Requests", b'{"code":8,"message":"overloaded"}')) as address:
            with self.assertRaisesRegex(Overloaded, "overloaded"):
                Weir(address, timeout=FAIL).check("user", "a")

    def test_bad_arguments(self):
        for nodes, options in ((), {}), (("host",), {}), ((":1",), {}), (("a:1",), {"timeout": 0}):
            with self.subTest(nodes), self.assertRaises(ValueError):
                Weir(*nodes, **options)


if __name__ == "__main__":
    unittest.main()
