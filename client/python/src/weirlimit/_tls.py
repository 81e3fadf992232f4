"""How connections to nodes are encrypted, and what proves who asks."""

from __future__ import annotations

import logging
import os
import re
import ssl
from dataclasses import dataclass
from typing import Optional, Union

from ._model import AccessError, GRPCPortError

Path = Union[str, "os.PathLike[str]"]
State = tuple[Optional[tuple[int, int, int]], ...]  # of files: each one's inode, size and time; None if it is not there

_log = logging.getLogger("weirlimit")


@dataclass(frozen=True)
class TLS:
    """Encrypts connections to nodes. Files are in PEM. Changed files are in force for new connections; if they
    cannot be used, those before stay in force.

    ca_file: the CA of the cluster. Without it nodes are verified by the CAs of the system.
    cert_file, key_file: the certificate of this client and its key. An access token does instead.
    """

    ca_file: Optional[Path] = None
    cert_file: Optional[Path] = None
    key_file: Optional[Path] = None

    def load(self) -> ssl.SSLContext:
        """Reads the files. It raises ValueError, which names the one that cannot be used."""
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file: give both or none")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        if self.ca_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(os.fspath(self.ca_file))
            except OSError as error:
                raise ValueError(f"tls: ca_file: {os.fspath(self.ca_file)!r}: {error}") from error
        if self.cert_file is not None and self.key_file is not None:
            pair = os.fspath(self.cert_file), os.fspath(self.key_file)
            try:
                context.load_cert_chain(*pair, password=_refuse_to_ask)
            except (OSError, ValueError) as error:
                raise ValueError(f"tls: cert_file and key_file: {pair[0]!r} and {pair[1]!r}: {error}") from error
        return context

    def state(self) -> State:
        """Differs from what it was if a file has changed."""
        return tuple(_state_of(path) for path in (self.ca_file, self.cert_file, self.key_file))


def _state_of(path: Optional[Path]) -> Optional[tuple[int, int, int]]:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _refuse_to_ask() -> str:
    raise ValueError("the key is encrypted")


class Credentials:
    """What a client wants nodes to prove, and what it proves to them. Safe for threads, and of use after a fork: it has
    no lock."""

    def __init__(self, tls: Optional[TLS] = None, access_token: str = "") -> None:
        if access_token and tls is None:
            raise ValueError("access_token: it would be sent unencrypted: give tls as well")
        if access_token and not re.fullmatch("[!-~]+", access_token):
            raise ValueError("access_token: it has more than printable ASCII without spaces")
        self.fields = {"Authorization": f"Bearer {access_token}"} if access_token else {}  # of the header of each request
        self._tls = tls
        self._loaded = None if tls is None else (tls.state(), tls.load())  # replaced as a whole

    def context(self) -> Optional[ssl.SSLContext]:
        """For the next connection; None if it is not encrypted."""
        if self._tls is None or self._loaded is None:
            return None
        state = self._tls.state()
        if state != self._loaded[0]:
            try:
                self._loaded = state, self._tls.load()
            except ValueError as error:
                _log.warning("%s: the files before stay in force", error)
        return self._loaded[1]


def explain(address: str, error: ssl.SSLError) -> Exception:
    """The error to raise for one of TLS: itself if the node may only have gone."""
    if isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessError(f"the certificate of {address} is not valid: {error.verify_message}")
    reason = error.reason or str(error)
    name = reason.upper().replace(" ", "_")  # Python knows the names of some reasons only, and OpenSSL's text of all
    if "NO_APPLICATION_PROTOCOL" in name:
        return GRPCPortError(address)
    if "ALERT" in name:
        return AccessError(f"{address} refuses this client's certificate, or wants one: {reason}")
    if "WRONG_VERSION" in name or "HTTP" in name:
        return AccessError(f"{address} has no TLS: leave tls out")
    return AccessError(f"TLS with {address}: {error}")
