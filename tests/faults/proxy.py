"""A TCP proxy that can be told to refuse, to hang, to cut, or to lose answers.

Promise: a change of behaviour holds for connections that are open as well as for new ones.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum
from urllib.parse import urlsplit, urlunsplit


class Way(Enum):
    """What the proxy does with what it gets."""

    PASS = "pass"
    # New connections are refused, open ones are cut.
    REFUSE = "refuse"
    # Connections are taken and nothing ever comes back: worse than refusing.
    HANG = "hang"
    # Requests go through, their answers are lost: the client cannot know what was done.
    SWALLOW = "swallow"


class Proxy:
    """Listens on a port of its own and passes everything on to `upstream`."""

    def __init__(self, upstream: tuple[str, int], *, host: str = "127.0.0.1") -> None:
        self._upstream = upstream
        self._host = host
        self._way = Way.PASS
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self.connections = 0
        with socket.create_server((host, 0)) as free:
            self.port: int = free.getsockname()[1]
        self._listen()

    def set(self, way: Way) -> None:
        """Behave like this from now on."""
        self._way = way
        if way is Way.REFUSE:
            self._stop_listening()
            self.cut()
        elif self._listener is None:
            self._listen()
        if way is Way.PASS:
            # What hung until now would never be answered.
            self.cut()

    def cut(self) -> None:
        """End every open connection."""
        with self._lock:
            sockets, self._open = self._open, set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stop_listening()
        self.cut()

    def _listen(self) -> None:
        self._listener = socket.create_server((self._host, self.port))
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self._upstream)
            with self._lock:
                self._open |= {client, server}
            for source, target, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pump, args=[source, target, is_answer], daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self._way is Way.HANG or (self._way is Way.SWALLOW and is_answer):
                    continue
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source, target}
        # The other direction's thread closes its own end.
        source.close()


@contextlib.contextmanager
def proxy_before(url: str, *, host: str = "127.0.0.1") -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of this address, and the address that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    proxy = Proxy((parts.hostname, parts.port), host=host)
    login = parts.netloc.rpartition("@")[0]
    place = f"{login}@{host}:{proxy.port}" if login else f"{host}:{proxy.port}"
    try:
        yield proxy, urlunsplit(parts._replace(netloc=place))
    finally:
        proxy.close()
