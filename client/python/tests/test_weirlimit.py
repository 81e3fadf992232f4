"""Tests against a real node, whose HTTP is at WEIR_HTTP and whose gRPC is at WEIR_GRPC, and its cluster, whose HTTP is at
WEIR_NODES, separated by commas; with the rules in ../../test-rules.yaml."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import socket
import threading
import time
import unittest
import urllib.request
from typing import Any, Callable
from unittest import mock

from servers import DECIDED, FAIL, Handler, dripping, name, replying, server, silent, unused, wait
from weirlimit import Answer, AsyncWeir, Check, Denied, GRPCPortError, Overloaded, Weir, _denials, _dispatch, _exchange, _nodes

NODE = os.environ["WEIR_HTTP"]
GRPC = os.environ["WEIR_GRPC"]
NODES = os.environ.get("WEIR_NODES", NODE).split(",")


class Proxy:
    """Stands before the real node and delays its replies. Counts requests and their checks."""

    def __init__(self, delay: float) -> None:
        self.delay, self.requests, self.checks = delay, 0, 0
        self._lock = threading.Lock()

    def __call__(self, connection: socket.socket, requests: int = 1 << 30) -> None:
        host, _, port = NODE.rpartition(":")
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            while requests > 0 and (line := reader.readline()):
                requests -= 1
                head, size = [line], 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                    if not line.lower().startswith((b"connection:", b"host:")):
                        head.append(line)
                body = reader.read(size)
                with self._lock:
                    self.requests += 1
                    self.checks += len(json.loads(body)["requests"])
                with socket.create_connection((host, int(port))) as node:
                    node.sendall(b"".join(head) + b"Host: %s\r\nConnection: close\r\n\r\n" % NODE.encode() + body)
                    with node.makefile("rb") as replies:
                        reply = replies.read()
                wait(self.delay)
                _, _, content = reply.partition(b"\r\n\r\n")
                if b"transfer-encoding: chunked" in reply.lower():
                    content = dechunk(content)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))


def checks_of(connection: socket.socket) -> int:
    """How many checks the next request on a connection has."""
    with connection.makefile("rb") as reader:
        size = 0
        while (line := reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        body = reader.read(size)
        return len(json.loads(body)["requests"]) if body else 0


def dechunk(content: bytes) -> bytes:
    chunks = []
    while content:
        size, _, content = content.partition(b"\r\n")
        chunks.append(content[: int(size, 16)])
        content = content[int(size, 16) + 2 :]
    return b"".join(chunks)


def at_once(callers: int, call: Callable[[], Any]) -> list[Any]:
    """What so many threads got that called at once: answers, or errors."""
    barrier = threading.Barrier(callers)

    def run() -> Any:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        return [f.result() for f in [pool.submit(run) for _ in range(callers)]]


class Case(unittest.TestCase):
    def client(self, *nodes: str, **options: Any) -> Weir:
        client = Weir(*nodes, **{"timeout": FAIL, **options})
        self.addCleanup(client.close)
        return client

    def assertBurst(self, outcomes: list[Any], limit: int) -> None:
        """Exactly as many passed as the limit allows, and each by a node's decision."""
        passed = [o for o in outcomes if isinstance(o, Answer) and o.allowed]
        self.assertEqual([o.source in DECIDED for o in passed], [True] * limit, passed)
        errors = [o for o in outcomes if isinstance(o, Exception) and not isinstance(o, Overloaded)]
        self.assertEqual(errors, [])


class RealNode(Case):
    """What a real node decides."""

    def test_limit(self) -> None:
        calls = []

        @self.client(NODE).limit("user", lambda user, text: user)
        def post(user: str, text: str) -> str:
            """Posts."""
            calls.append(text)
            return text

        alice = name()
        self.assertEqual([post(alice, "a"), post(alice, text="b")], ["a", "b"])
        with self.assertRaises(Denied) as raised:
            post(alice, "c")
        self.assertEqual(raised.exception.answer.rule_id, "posts")
        retry_after = raised.exception.retry_after
        self.assertTrue(retry_after is not None and 0 < retry_after <= 86400, retry_after)
        self.assertEqual(post(name(), "d"), "d")
        self.assertEqual(calls, ["a", "b", "d"])
        self.assertEqual((post.__name__, post.__doc__), ("post", "Posts."))

    def test_check(self) -> None:
        weir, alice = self.client(NODE), name()
        answer = weir.check("user", alice, "post")
        self.assertEqual((answer.remaining, answer.limit), (1, 2))
        self.assertEqual(weir.check("user", alice, "other").source, "SOURCE_NO_RULE")
        above = weir.check("user", alice, "post", tokens=3)
        self.assertEqual((above.allowed, above.retry_after), (False, None), "it costs more than the limit")
        self.assertFalse(weir.check("user", alice, method="DELETE").allowed)

    def test_turns(self) -> None:
        turn = self.client(NODE).limit("user", lambda user: user, endpoint="queue")(lambda user: time.monotonic())
        alice, begin = name(), time.monotonic()
        turn(alice)
        self.assertGreaterEqual(turn(alice) - begin, 0.1)  # the queue's pace

    def test_second_node(self) -> None:
        with server(silent) as mute:
            weir = self.client(unused(), mute, NODE, timeout=2)
            self.assertLessEqual({weir.check("user", name(), "post").source for _ in range(4)}, DECIDED)

    def test_idle_connection_that_was_closed(self) -> None:
        """What a node has closed meanwhile is no failure: the same node is asked again."""
        proxy, served = Proxy(delay=0), []

        def once(connection: socket.socket) -> None:
            served.append(1)
            proxy(connection, requests=1)

        with server(once) as address:
            weir = self.client(address)
            for _ in range(5):
                self.assertIn(weir.check("user", name(), "post").source, DECIDED)
        self.assertEqual(len(served), 5)

    def test_fork(self) -> None:
        weir = self.client(NODE)
        weir.check("user", name(), "post")
        child = os.fork()
        if child == 0:
            os._exit(0 if weir.check("user", name(), "post").source in DECIDED else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_port_of_grpc(self) -> None:
        for options in ({}, {"fail_open": False}):
            with self.assertRaisesRegex(GRPCPortError, GRPC + " speaks gRPC, not HTTP"):
                self.client(GRPC, **options).check("user", name(), "post")


class Burst(Case):
    """Many checks at once, of a limit of 3."""

    def test_threads(self) -> None:
        weir, alice = self.client(*NODES), name()
        self.assertBurst(at_once(200, lambda: weir.check("user", alice, "login")), 3)

    def test_slow_node(self) -> None:
        proxy = Proxy(delay=0.3)
        with server(proxy) as address:
            weir, alice = self.client(address, timeout=5), name()
            self.assertBurst(at_once(200, lambda: weir.check("user", alice, "login")), 3)
        self.assertLess(proxy.requests, 50, "checks at once travel together")

    def test_slow_among_others(self) -> None:
        """A node that is slower than half of the timeout has counted what another is asked as well."""
        for _ in range(5):  # which is asked first is drawn
            proxy = Proxy(delay=1.6)
            with server(proxy) as address:
                weir, alice = self.client(address, NODE, timeout=3), name()
                self.assertBurst(at_once(50, lambda: weir.check("user", alice, "login")), 3)

    def test_own_overload_is_refused(self) -> None:
        proxy = Proxy(delay=0.8)
        with server(proxy) as address, mock.patch.object(_dispatch, "MAX_BATCH", 1):
            weir, alice = self.client(address, timeout=2), name()
            outcomes = at_once(200, lambda: weir.check("user", alice, "login"))
        self.assertBurst(outcomes, 3)
        self.assertGreater(sum(isinstance(o, Overloaded) for o in outcomes), 100)

    def test_full_queue(self) -> None:
        proxy = Proxy(delay=0.5)
        with server(proxy) as address, mock.patch.object(_dispatch, "MAX_QUEUE", 10), mock.patch.object(_dispatch, "MAX_BATCH", 1):
            weir, alice = self.client(address), name()
            outcomes = at_once(100, lambda: weir.check("user", alice, "login"))
        self.assertBurst(outcomes, 3)
        self.assertGreater(sum(isinstance(o, Overloaded) for o in outcomes), 50)

    def test_asyncio(self) -> None:
        """Also if the loop is late for longer than the timeout."""

        async def burst() -> list[Any]:
            async with AsyncWeir(*NODES, timeout=2) as weir:
                alice = name()
                tasks = [asyncio.ensure_future(weir.check("user", alice, "login")) for _ in range(200)]
                await asyncio.sleep(0)
                wait(4)  # blocks the loop
                return await asyncio.gather(*tasks, return_exceptions=True)

        self.assertBurst(asyncio.run(burst()), 3)


class Asyncio(Case):
    def test_limit(self) -> None:
        async def run() -> None:
            async with AsyncWeir(NODE, timeout=FAIL) as weir:

                @weir.limit("user", lambda user: user)
                async def post(user: str) -> str:
                    """Posts."""
                    await asyncio.sleep(0)
                    return user

                alice = name()
                self.assertEqual([await post(alice), await post(alice)], [alice, alice])
                with self.assertRaises(Denied):
                    await post(alice)
                self.assertEqual((post.__name__, post.__doc__), ("post", "Posts."))
                queue = weir.limit("user", lambda user: user, endpoint="queue")(post)
                bob, begin = name(), time.monotonic()
                await asyncio.gather(queue(bob), queue(bob))
                self.assertGreaterEqual(time.monotonic() - begin, 0.1)
                with self.assertRaisesRegex(ValueError, "identifier: must not be empty"):
                    await weir.check("user", "")

        asyncio.run(run())

    def test_canceled_before_it_is_sent(self) -> None:
        proxy = Proxy(delay=0.3)

        async def run(address: str) -> None:
            async with AsyncWeir(address, timeout=FAIL) as weir:
                alice = name()
                first = asyncio.ensure_future(weir.check("user", alice, "login"))
                while proxy.requests == 0:
                    await asyncio.sleep(0.001)
                rest = [asyncio.ensure_future(weir.check("user", alice, "login")) for _ in range(50)]
                await asyncio.sleep(0)
                for task in rest:
                    task.cancel()
                self.assertEqual((await first).remaining, 2)
                self.assertTrue((await weir.check("user", alice, "login")).allowed)

        with server(proxy) as address, mock.patch.object(_dispatch, "IN_FLIGHT", 1):
            asyncio.run(run(address))
        self.assertEqual(proxy.checks, 2)


class Remembered(Case):
    def test_denial(self) -> None:
        proxy, alice = Proxy(delay=0), name()
        with server(proxy) as address:
            weir = self.client(address, remember_denials=FAIL)
            denied = [weir.check("user", alice, "post", tokens=2) for _ in range(50)][-1]
            self.assertEqual((denied.allowed, denied.rule_id, proxy.requests), (False, "posts", 2))
            self.assertIsNone(weir.check("user", alice, "post", tokens=3).retry_after, "it costs more than the limit")
            weir.check("user", alice, "other", tokens=2)
            weir.check("user", name(), "post", tokens=2)
            self.assertEqual(proxy.requests, 5)
            weir.check("user", alice, "post", tokens=-2)
            self.assertTrue(weir.check("user", alice, "post", tokens=2).allowed, "what is given back is seen")

    def test_not_for_longer(self) -> None:
        weir, alice = self.client(NODE, remember_denials=0.2), name()
        for _ in range(3):
            answer = weir.check("user", alice, "post")
        self.assertFalse(answer.allowed)
        Weir(NODE, timeout=FAIL).check("user", alice, "post", tokens=-1)
        self.assertFalse(weir.check("user", alice, "post").allowed)
        wait(0.25)
        self.assertTrue(weir.check("user", alice, "post").allowed)

    def test_bounded(self) -> None:
        denials, denied = _denials.Denials(FAIL), Answer(False, "SOURCE_OWNER", retry_after=FAIL)
        with mock.patch.object(_denials, "MAX_DENIALS", 10):
            for i in range(30):
                denials.note(Check("user", str(i)), denied)
        self.assertEqual([i for i in range(30) if denials.find(Check("user", str(i)))], list(range(20, 30)))
        known = denials.find(Check("user", "29"))
        self.assertTrue(known is not None and known.retry_after is not None and known.retry_after < FAIL)

    def test_silent_node(self) -> None:
        with server(silent) as address:
            weir = self.client(address, timeout=0.2)
            begin = time.monotonic()
            self.assertEqual({weir.check("user", name()).source for _ in range(100)}, {"SOURCE_FAIL_OPEN"})
            self.assertLess(time.monotonic() - begin, 3)  # 20 if each of them waits

    def test_node_that_is_back(self) -> None:
        """A node that has rested is asked by one check, and by all when it has answered."""
        mute = threading.Event()
        proxy = Proxy(delay=0)

        def sometimes(connection: socket.socket) -> None:
            if mute.is_set():
                wait(FAIL)
            proxy(connection)

        with server(sometimes) as address, mock.patch.object(_nodes, "REST", 0.3):
            mute.set()
            weir = self.client(address, timeout=0.1)
            self.assertEqual(weir.check("user", name(), "post").source, "SOURCE_FAIL_OPEN")
            mute.clear()
            until = time.monotonic() + FAIL
            while weir.check("user", name(), "post").source not in DECIDED:
                self.assertLess(time.monotonic(), until)
                wait(0.01)


    def test_node_that_is_back_among_others(self) -> None:
        """While another node answers, no check waits for one that has rested, and it is asked again."""
        mute, proxy = threading.Event(), Proxy(delay=0)
        sent: list[int] = []  # checks of each request to it while it is silent

        def sometimes(connection: socket.socket) -> None:
            if mute.is_set():
                sent.append(checks_of(connection))
                wait(FAIL)
            proxy(connection)

        with server(sometimes) as address, mock.patch.object(_nodes, "REST", 0.3):
            mute.set()
            weir = self.client(address, NODE, timeout=5)  # the other one has half of it on a busy machine
            while sum(sent) == 0:
                weir.check("user", name(), "post")  # it is silent for half of the timeout
            until = time.monotonic() + FAIL
            while sent.count(0) < 2:  # it was asked twice whether it is back
                self.assertLess(time.monotonic(), until)
                weir.check("user", name(), "post")
                self.assertEqual(sum(sent), 1, "a check was sent to the node that rests")
                wait(0.01)
            mute.clear()
            until = time.monotonic() + FAIL
            while proxy.checks == 0:
                self.assertLess(time.monotonic(), until)
                weir.check("user", name(), "post")
                wait(0.01)


class OtherCluster(Case):
    """What happens where a node of another cluster has the address of one of the client's."""

    def test_stranger_among_nodes(self) -> None:
        seen: list[bytes] = []
        allowed = b'{"responses":[{"allowed":true,"source":"SOURCE_OWNER"}]}'

        def foreign(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                seen.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\nWeir-Cluster: ff\r\nContent-Length: %d\r\n\r\n%s" % (len(allowed), allowed))

        real = self.client(NODE)
        real.check("user", name(), "login")
        cluster = real._dispatcher._nodes.cluster
        with server(foreign) as stranger:
            weir = self.client(NODE, stranger, remember_denials=0)
            nodes = weir._dispatcher._nodes
            nodes.admit(nodes._nodes[0], cluster)
            user = name()
            answers: list[Answer] = []
            while not seen or len(answers) < 50:
                answers.append(weir.check("user", user, "login"))
        self.assertEqual([a.allowed for a in answers], [True] * 3 + [False] * (len(answers) - 3))
        self.assertIn(f"Weir-Cluster: {cluster}".encode(), seen[0])
        for probe in seen[1:]:  # as long as another node answers
            self.assertIn(b'{"requests":[]}', probe)

    def test_real_node_refuses_what_another_is_asked(self) -> None:
        nodes = _nodes.Nodes([NODE, "127.0.0.1:1"])
        nodes.admit(nodes._nodes[1], "ff")
        exchange = _exchange.Exchange(nodes, FAIL, True)
        self.addCleanup(exchange.close)
        check = Check("user", name(), "login", 1, "", {})
        for _ in range(10):
            (answer,) = exchange.ask([_exchange.Pending(check)])
            assert isinstance(answer, Answer)
            self.assertEqual(answer.source, "SOURCE_FAIL_OPEN")
            nodes.answered(nodes._nodes[0])
        fresh = self.client(NODE).check("user", check.identifier, "login")
        self.assertEqual((fresh.allowed, fresh.remaining), (True, 2))

    def test_given(self) -> None:
        """A client that was given its cluster never asks another, not even one that names none."""
        own, seen = "00000000000000aa", []
        allowed = b'{"responses":[{"allowed":true,"source":"SOURCE_OWNER"}]}'

        def foreign(field: bytes) -> Handler:
            def reply(connection: socket.socket) -> None:
                with connection, contextlib.suppress(OSError):
                    seen.append(connection.recv(1 << 16))
                    connection.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (field, len(allowed), allowed))

            return reply

        for field in b"Weir-Cluster: 00000000000000ff\r\n", b"":
            with server(foreign(field)) as stranger:
                self.assertEqual(self.client(stranger, cluster=own).check("user", name()).source, "SOURCE_FAIL_OPEN")
        self.assertEqual([f"Weir-Cluster: {own}".encode() in request for request in seen], [True, True])
        with urllib.request.urlopen(f"http://{NODE}/v1/health") as health:
            cluster = json.load(health)["cluster"]
        self.assertIn(self.client(NODE, cluster=cluster).check("user", name(), "login").source, DECIDED)
        nodes = _nodes.Nodes(["a:1"], own)
        with mock.patch.object(_nodes, "FORGOTTEN", 0.0):
            self.assertEqual((nodes.admit(nodes._nodes[0], "ff"), nodes.cluster), (False, own))

    def test_most_nodes_name_it(self) -> None:
        nodes = _nodes.Nodes(["a:1", "b:1", "c:1"])
        a, b, c = nodes._nodes
        named = [nodes.admit(a, "ff"), nodes.admit(b, "aa"), nodes.admit(c, "aa"), nodes.admit(a, "ff"), nodes.admit(a, None)]
        self.assertEqual((named, nodes.cluster), ([True, False, True, False, True], "aa"))

    def test_replaced(self) -> None:
        nodes = _nodes.Nodes(["a:1"])
        (a,) = nodes._nodes
        self.assertEqual((nodes.admit(a, "aa"), nodes.admit(a, "ff")), (True, False))
        with mock.patch.object(_nodes, "FORGOTTEN", 0.0):
            self.assertEqual((nodes.admit(a, "ff"), nodes.cluster), (True, "ff"))


class NoNode(Case):
    """What happens while none answers as it should."""

    def test_fail_open(self) -> None:
        for handler in silent, dripping, replying("200 OK", b"nonsense"), replying("500 Oops", b"{}"), replying("200 OK", b"7"):
            with self.subTest(handler), server(handler) as address:
                begin = time.monotonic()
                self.assertEqual(self.client(address, timeout=1).limit("user", lambda: "a")(lambda: 7)(), 7)
                self.assertLess(time.monotonic() - begin, FAIL / 4)
        self.assertEqual(self.client(unused()).check("user", "a").source, "SOURCE_FAIL_OPEN")

    def test_fail_closed(self) -> None:
        with self.assertRaises(Denied) as raised:
            self.client(unused(), fail_open=False).limit("user", lambda: "a")(self.fail)()
        self.assertEqual(raised.exception.answer.source, "SOURCE_FAIL_CLOSED")

    def test_what_gives_back_is_sent_once(self) -> None:
        proxy = Proxy(delay=0)
        with server(silent) as mute, server(proxy) as address, mock.patch("random.choice", lambda nodes: nodes[0]):
            weir = self.client(mute, address, timeout=0.2)
            self.assertEqual(weir.check("user", "a", tokens=-1).source, "SOURCE_FAIL_OPEN")
        self.assertEqual(proxy.checks, 0)


class Refused(Case):
    def test_invalid(self) -> None:
        weir = self.client(NODE)
        calls: dict[str, Callable[[], Answer]] = {
            "identifier: must not be empty": lambda: weir.check("user", ""),
            "identifier: 257 bytes are more than 256": lambda: weir.check("user", "a" * 257),
            "identifier: .*surrogates not allowed": lambda: weir.check("user", "\ud800"),
            "identifier_type: 65 bytes are more than 64": lambda: weir.check("u" * 65, "a"),
            "endpoint: 257 bytes are more than 256": lambda: weir.check("user", "a", "a" * 257),
            "tokens: 0 is 0": lambda: weir.check("user", "a", tokens=0),
            "attributes: 15 are more than 14": lambda: weir.check("user", "a", "", 1, **{f"a{i}": "" for i in range(15)}),
            "attributes: 'user' is the identifier_type": lambda: weir.check("user", "a", user="b"),
        }
        for message, call in calls.items():
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                call()

    def test_by_the_node(self) -> None:
        """One check that a node refuses does not refuse those that travel with it."""
        proxy = Proxy(delay=0.1)
        with server(proxy) as address, mock.patch.object(Check, "__post_init__", lambda self: None):
            weir, users = self.client(address), [name() for _ in range(30)]
            users[7] = users[20] = ""
            with concurrent.futures.ThreadPoolExecutor(30) as pool:
                outcomes = [f.exception() or f.result() for f in [pool.submit(weir.check, "user", u, "post") for u in users]]
        for user, outcome in zip(users, outcomes):
            if user:
                self.assertIn(getattr(outcome, "source", outcome), DECIDED)
            else:
                self.assertEqual((type(outcome), str(outcome)), (ValueError, "identifier: must not be empty"))

    def test_last_reply_of_a_connection(self) -> None:
        """A reply that ends with its connection is read whole."""
        reply = b'{"responses":[{"allowed":true,"source":"SOURCE_OWNER"' + b" " * 200_000 + b"}]}"
        with server(replying("200 OK\r\nConnection: close", reply)) as address:
            self.assertEqual(self.client(address).check("user", name()).source, "SOURCE_OWNER")

    def test_overloaded(self) -> None:
        with server(replying("503 Busy", b'{"code":8,"message":"overloaded"}')) as address:
            with self.assertRaisesRegex(Overloaded, "overloaded"):
                self.client(address).check("user", "a")

    def test_bad_arguments(self) -> None:
        for nodes, options in ((), {}), (("host",), {}), ((":1",), {}), (("a:1",), {"timeout": 0}), (("a:1",), {"cluster": "default"}), (("a:1",), {"remember_denials": -1}):
            with self.subTest(nodes), self.assertRaises(ValueError):
                Weir(*nodes, **options)

    def test_closed(self) -> None:
        weir = Weir(NODE, timeout=FAIL)
        with weir:
            weir.check("user", name())
        with self.assertRaisesRegex(RuntimeError, "closed"):
            weir.check("user", name())


if __name__ == "__main__":
    unittest.main()
