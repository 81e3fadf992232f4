"""Lets alice post ten times a minute, by the rules of docs/python.md."""

from weirlimit import Denied, Weir

weir = Weir("127.0.0.1:8080", "127.0.0.1:8081")  # HTTP addresses of the nodes; one is enough


@weir.limit("user", lambda user, text: user)
def post(user: str, text: object) -> None:
    print(user, "posts", text)


for i in range(11):
    try:
        post("alice", i)
    except Denied as denied:
        print("come back in", denied.retry_after, "seconds")
