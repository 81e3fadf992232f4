"""Tests against two nodes with TLS, whose HTTP is at WEIR_NODES, separated by a comma, and the gRPC of one at WEIR_GRPC; with
the rules in ../../test-rules.yaml. WEIR_CERTS is a directory of weir certs, with the clients "checks" and "scrapes" of the
roles check and metrics. WEIR_FOREIGN_CERTS has those of another CA. WEIR_TOKEN is a token with the role check."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import tempfile
import threading
import time
import unittest
from typing import Any, Optional

from servers import DECIDED, FAIL, name, replying, server, silent, unused, wait
from weirlimit import TLS, AccessError, Answer, AsyncWeir, Check, GRPCPortError, Weir

NODES = os.environ["WEIR_NODES"].split(",")
GRPC = os.environ["WEIR_GRPC"]
CERTS = pathlib.Path(os.environ["WEIR_CERTS"])
FOREIGN = pathlib.Path(os.environ["WEIR_FOREIGN_CERTS"])
TOKEN = os.environ["WEIR_TOKEN"]


def files(client: str = "", certs: pathlib.Path = CERTS, ca: Optional[pathlib.Path] = CERTS) -> TLS:
    """The files of a client, only the CA without one."""
    pair = (certs / f"client-{client}.crt", certs / f"client-{client}.key") if client else (None, None)
    return TLS(ca / "ca.crt" if ca else None, *pair)


class Forwarder:
    """Stands before a node until it is stopped, which ends its connections."""

    def __init__(self, node: str, listen: str = "127.0.0.1") -> None:
        host, _, port = node.rpartition(":")
        self._node = host, int(port)
        self._listener = socket.create_server((listen, 0))
        self._sockets = [self._listener]
        self.address = "%s:%d" % self._listener.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection(self._node)
                self._sockets += [client, node]
                for ends in ((client, node), (node, client)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class TLSTest(unittest.TestCase):
    def client(self, *nodes: str, **options: Any) -> Weir:
        client = Weir(*(nodes or NODES), **{"timeout": FAIL, "remember_denials": 0, **options})
        self.addCleanup(client.close)
        return client

    def assertLimited(self, client: Weir) -> None:
        """The nodes count: of four logins three are allowed."""
        user = name()
        answers = [client.check("user", user, "login") for _ in range(4)]
        self.assertEqual([a.allowed for a in answers], [True, True, True, False], answers)
        self.assertEqual([a.source in DECIDED for a in answers], [True] * 4, answers)

    def assertRefused(self, client: Weir, pattern: str) -> None:
        """Each check raises AccessError, those too that come while the nodes are left alone."""
        for _ in range(3):
            with self.assertRaisesRegex(AccessError, pattern):
                client.check("user", name(), "login")

    def isAsked(self, client: Weir) -> bool:
        try:
            return client.check("user", name(), "login").allowed
        except AccessError:
            wait(0.05)
            return False

    def test_certificate(self) -> None:
        self.assertLimited(self.client(tls=files("checks")))

    def test_token(self) -> None:
        self.assertLimited(self.client(tls=files(), access_token=TOKEN))

    def test_token_wins(self) -> None:
        self.assertLimited(self.client(tls=files("scrapes"), access_token=TOKEN))

    def test_asyncio(self) -> None:
        async def run() -> list[Answer]:
            async with AsyncWeir(*NODES, timeout=FAIL, remember_denials=0, tls=files(), access_token=TOKEN) as client:
                user = name()
                return [await client.check("user", user, "login") for _ in range(4)]

        self.assertEqual([a.allowed for a in asyncio.run(run())], [True, True, True, False])

    def test_batches(self) -> None:
        """Replies of more than one record of TLS, on connections that are used again."""
        client, users = self.client(tls=files(), access_token=TOKEN), [name() for _ in range(300)]
        for allowed in (True, True, True, False):
            futures = [client._dispatcher.submit(Check("user", user, "login")) for user in users]
            answers = [f.result() for f in futures]
            self.assertEqual({(a.allowed, a.source in DECIDED) for a in answers}, {(allowed, True)})

    def test_neither_certificate_nor_token(self) -> None:
        self.assertRefused(self.client(tls=files()), 'neither a certificate of a client nor a token.*role "check"')

    def test_unknown_token(self) -> None:
        self.assertRefused(self.client(tls=files("checks"), access_token="weir_x"), "the token is unknown or revoked")

    def test_other_role(self) -> None:
        self.assertRefused(self.client(tls=files("scrapes")), 'client "scrapes".*has not the role "check"')

    def test_giving_back(self) -> None:
        client = self.client(tls=files())
        for _ in range(3):
            with self.assertRaises(AccessError):
                client.check("user", name(), "login", tokens=-1)

    def test_wrong_ca(self) -> None:
        for ca in (FOREIGN, None):
            self.assertRefused(self.client(tls=files("checks", ca=ca), fail_open=True), "the certificate of .* is not valid: .*issuer")

    def test_wrong_host(self) -> None:
        node = Forwarder(NODES[0], "127.0.0.2")  # for which the node's certificate is not
        self.addCleanup(node.stop)
        self.assertRefused(self.client(node.address, tls=files()), "the certificate of 127.0.0.2:.* is not valid: IP address mismatch")

    def test_certificate_of_another_ca(self) -> None:
        self.assertRefused(self.client(tls=files("checks", certs=FOREIGN)), "refuses this client's certificate")

    def test_nodes_with_tls_and_client_without(self) -> None:
        self.assertRefused(self.client(), "has TLS: give tls")

    def test_client_with_tls_and_nodes_without(self) -> None:
        with server(replying("400 Bad Request", b"")) as plain:
            self.assertRefused(self.client(plain, tls=files()), "has no TLS|TLS with")

    def test_port_of_grpc(self) -> None:
        with self.assertRaisesRegex(GRPCPortError, GRPC + " speaks gRPC, not HTTP"):
            self.client(GRPC, tls=files("checks")).check("user", name())

    def test_proxy_that_ends_connections(self) -> None:
        """A proxy without ALPN whose node does not answer is a node that does not answer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTS / "node-a.crt", CERTS / "node-a.key")

        def ending(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
                encrypted.recv(1 << 16)

        with server(ending) as proxy:
            self.assertEqual(self.client(proxy, tls=files("checks")).check("user", name()).source, "SOURCE_FAIL_OPEN")

    def test_other_nodes_are_asked(self) -> None:
        """Nodes that refuse connections, do not speak, or have another CA's certificate are no error while one answers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FOREIGN / "node-a.crt", FOREIGN / "node-a.key")

        def foreign(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True):
                pass

        with server(foreign) as other, server(silent) as mute:
            for nodes in ((unused(), NODES[0]), (other, NODES[0]), (mute, NODES[1]), (unused(), other, mute, *NODES)):
                client = self.client(*nodes, timeout=4.0, tls=files("checks"))
                for _ in range(4):
                    self.assertIn(client.check("user", name(), "login").source, DECIDED)

    def test_node_that_dies(self) -> None:
        dying = Forwarder(NODES[0])
        self.addCleanup(dying.stop)
        client = self.client(dying.address, NODES[1], timeout=4.0, tls=files(), access_token=TOKEN)
        user = name()
        answers = []
        for i in range(12):
            if i == 6:
                dying.stop()
            answers.append(client.check("user", user, "login"))
        self.assertEqual([a.source in DECIDED for a in answers], [True] * 12, answers)
        self.assertEqual(sum(a.allowed for a in answers), 3)

    def test_no_node(self) -> None:
        """Nodes that do not answer have refused nothing."""
        for fail_open in (True, False):
            client = self.client(unused(), timeout=1.0, fail_open=fail_open, tls=files("checks"))
            self.assertEqual(client.check("user", name()).allowed, fail_open)

    def test_changed_files(self) -> None:
        """Files that are replaced are in force for the next connection. Broken ones leave those before in force."""
        with tempfile.TemporaryDirectory() as directory:
            own = pathlib.Path(directory)

            def put(certs: pathlib.Path) -> None:
                for end in ("ca.crt", "client-checks.crt", "client-checks.key"):
                    shutil.copy(certs / end, own / "new")
                    os.replace(own / "new", own / end)

            put(FOREIGN)
            client = self.client(tls=files("checks", certs=own, ca=own))
            self.assertRefused(client, "is not valid")
            put(CERTS)
            until = time.monotonic() + FAIL
            while not self.isAsked(client):  # the nodes are left alone for a moment
                self.assertLess(time.monotonic(), until)
            self.assertLimited(client)
            credentials = client._dispatcher._credentials
            before = credentials.context()
            self.assertIs(credentials.context(), before)
            (own / "client-checks.key").write_text("broken")
            with self.assertLogs("weirlimit", "WARNING") as logs:
                self.assertIs(credentials.context(), before)
            self.assertIn("client-checks.key", logs.output[0])
            put(CERTS)
            self.assertIsNot(credentials.context(), before)

    def test_bad_options(self) -> None:
        missing, ca = CERTS / "missing", CERTS / "ca.crt"
        pair = CERTS / "client-checks.crt", CERTS / "client-checks.key"
        for options, message in (
            ({"access_token": TOKEN}, "access_token: it would be sent unencrypted: give tls"),
            ({"tls": TLS(ca), "access_token": "a b"}, "access_token: it has more than printable ASCII without spaces"),
            ({"tls": TLS(ca), "access_token": "a\r\nb"}, "access_token: it has more"),
            ({"tls": TLS(missing)}, "tls: ca_file: .*missing.*No such file"),
            ({"tls": TLS(pair[1])}, "tls: ca_file: .*client-checks.key"),
            ({"tls": TLS(ca, pair[0])}, "tls: cert_file and key_file: give both or none"),
            ({"tls": TLS(ca, None, pair[1])}, "tls: cert_file and key_file: give both or none"),
            ({"tls": TLS(ca, pair[0], missing)}, "tls: cert_file and key_file: .*missing"),
            ({"tls": TLS(ca, pair[0], CERTS / "client-scrapes.key")}, "tls: cert_file and key_file: .*mismatch"),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                self.client(**options)
