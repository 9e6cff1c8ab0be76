"""Little real servers on 127.0.0.1 that receive what the product sends, and misbehave on demand.

Promise: each ends with its context, and says how many connections it ever accepted.
"""

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Made for these tests, for localhost and 127.0.0.1; nothing else trusts it.
CERTIFICATE = Path(__file__).with_name("localhost.pem")
LIMIT_S = 30


@dataclass
class Request:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


# Given the request and the raw connection, it writes whatever it likes.
Behaviour = Callable[[Request, socket.socket], None]


def says(raw: bytes) -> Behaviour:
    """Any bytes as the answer."""
    return lambda request, connection: connection.sendall(raw)


def answers(status: int, *headers: str, body: bytes = b"") -> Behaviour:
    """An ordinary answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return says("\r\n".join([*lines, "", ""]).encode() + body)


@dataclass
class HttpServer:
    """Keeps what it received; `behaviours` is used up from the left, its last entry stays."""

    port: int = 0
    behaviours: list[Behaviour] = field(default_factory=lambda: [answers(204)])
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    # Set when the server ends, so that a behaviour that hangs can be waited for.
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def keys(self) -> list[str]:
        return [request.headers["idempotency-key"] for request in self.requests]

    def hangs(self, request: Request, connection: socket.socket) -> None:
        """Say nothing at all, until the other side goes or the test ends."""
        connection.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):
            connection.recv(1)

    def dribbles(self, first: bytes, piece: bytes) -> Behaviour:
        """Send a piece every twentieth of a second, until the other side goes."""

        def behave(request: Request, connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                connection.sendall(first)
                while not self.ended.wait(0.05):
                    connection.sendall(piece)

        return behave


@contextlib.contextmanager
def http_server(*behaviours: Behaviour, tls: bool = False) -> Iterator[HttpServer]:
    """A server for the time of the context."""
    server = HttpServer()
    if behaviours:
        server.behaviours = list(behaviours)
    lock = threading.Lock()

    def serve(connection: socket.socket) -> None:
        request = _read_request(connection)
        if request is None:
            return
        with lock:
            server.requests.append(request)
            one_left = len(server.behaviours) == 1
            behave = server.behaviours[0] if one_left else server.behaviours.pop(0)
        behave(request, connection)

    with _listening(server, serve, tls=tls):
        yield server


def _read_request(connection: socket.socket) -> Request | None:
    reader = connection.makefile("rb")
    first = reader.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while line := reader.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Request(first[0], first[1], headers, reader.read(int(headers["content-length"])))


@dataclass
class SmtpServer:
    """Takes mail; `refusals` maps an address to the line that refuses it."""

    port: int = 0
    mails: list[tuple[str, str]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    greeting: str = "220 here"
    login: str = "235 welcome"
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def converse(self, connection: socket.socket) -> None:
        reader = connection.makefile("rb")

        def say(line: str) -> None:
            connection.sendall(f"{line}\r\n".encode())

        say(self.greeting)
        to = ""
        while line := reader.readline().decode().strip():
            word = line.upper()
            if word.startswith("EHLO"):
                say("250-here")
                say("250 AUTH PLAIN")
            elif word.startswith("AUTH"):
                say(self.login)
            elif word.startswith("RCPT"):
                to = line.partition("<")[2].partition(">")[0]
                say(self.refusals.get(to, "250 ok"))
            elif word == "DATA":
                say("354 go on")
                text = b""
                while (part := reader.readline()) not in (b".\r\n", b""):
                    text += part
                self.mails.append((to, text.decode()))
                say("250 taken")
            elif word == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")


@contextlib.contextmanager
def smtp_server() -> Iterator[SmtpServer]:
    """A mail server for the time of the context."""
    server = SmtpServer()
    with _listening(server, server.converse, tls=False):
        yield server


@contextlib.contextmanager
def _listening(
    server: HttpServer | SmtpServer, serve: Callable[[socket.socket], None], *, tls: bool
) -> Iterator[None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls:
        context.load_cert_chain(CERTIFICATE)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            server.connections += 1
            self.request.settimeout(LIMIT_S)
            # A client that hangs up or refuses our certificate is what some tests are about.
            with contextlib.suppress(OSError):
                if not tls:
                    serve(self.request)
                    return
                with context.wrap_socket(self.request, server_side=True) as wrapped:
                    serve(wrapped)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.ended.set()
            listening.shutdown()
            thread.join(LIMIT_S)
