"""Limits what a Python program does, by asking nodes of Weir over HTTP.

    weir = Weir("127.0.0.1:8080", "127.0.0.1:8081")

    @weir.limit("user", lambda user, text: user)
    def post(user, text): ...

    try:
        post("alice", "hello")
    except Denied as denied:
        ...  # try again in denied.retry_after seconds

AsyncWeir is the same for asyncio. Checks that are made at the same time travel in one request. If
no node answers in time a check is allowed, with the source SOURCE_FAIL_OPEN, or denied with
fail_open=False. Overload, of a node or of this process, raises Overloaded.

Nodes with TLS want a certificate or an access token:

    weir = Weir("localhost:8080", tls=TLS("certs/ca.crt"), access_token=os.environ["WEIR_TOKEN"])
"""

from ._async import AsyncWeir
from ._model import AccessError, Answer, Check, Denied, GRPCPortError, Overloaded
from ._sync import Weir
from ._tls import TLS

__all__ = ["TLS", "AccessError", "Answer", "AsyncWeir", "Check", "Denied", "GRPCPortError", "Overloaded", "Weir"]
