"""One HTTP POST to an address that somebody else named.

Promise: it ends within its deadline and reads at most 64 KB, whatever the other side does; it
connects only to public addresses, judged when the socket opens; it follows nothing, uses no proxy.
Once the other side has said its status and its headers, nothing changes what was said.
"""

import contextlib
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

LARGEST_ANSWER_BYTES = 65_536
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9][ \t]+([1-9][0-9]{2})(?:[ \t].*)?\r?\n?")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Reachable as if public, and yet a cloud's own services or a way back into the inner network.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddress(Exception):
    """The name leads to an address that nobody outside may make us call."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The status and the headers, by names in small letters; nobody needs the body."""

    status: int
    headers: Mapping[str, str]


class Deadline:
    """A moment that everything together has to keep."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds that are left. Raises TimeoutError where none are."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the deadline of the request has passed")
        return left_s


def inner_address(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it stands for one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def is_allowed(text: str, *, allow_loopback: bool, allow_public: bool = True) -> bool:
    """Whether we may connect to this numeric address."""
    address = inner_address(ipaddress.ip_address(text.partition("%")[0]))
    if address.is_loopback:
        return allow_loopback
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    if any(address in net for net in _NOT_PUBLIC if net.version == address.version):
        return False
    return allow_public


def _look_up(host: str, port: int, deadline: Deadline) -> list[tuple[Any, ...]]:
    """getaddrinfo knows no time-out, so it runs in a thread that may be left behind."""
    found: list[list[tuple[Any, ...]]] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    if errors:
        raise OSError(f"the name cannot be resolved: {errors[0]}")
    if not found:
        raise TimeoutError("the name was not resolved in time")
    return found[0]


def open_socket(
    host: str, port: int, *, deadline: Deadline, allow_loopback: bool, allow_public: bool
) -> socket.socket:
    """A connection to the address that was judged, not to whatever the name means a moment later.

    One forbidden address among several is enough to refuse them all.
    """
    addresses = _look_up(host, port, deadline)
    for *_, target in addresses:
        if not is_allowed(target[0], allow_loopback=allow_loopback, allow_public=allow_public):
            raise ForbiddenAddress("the name leads to an address that is not allowed")
    trouble: OSError = OSError("the name has no address")
    for family, kind, protocol, _, target in addresses:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(deadline.left_s())
            opened.connect(target)
        except OSError as error:
            opened.close()
            trouble = error
            continue
        return opened
    raise trouble


class _Reads(io.RawIOBase):
    """At most 64 KB, all within one deadline: a byte a second does not last for ever."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._left_bytes = LARGEST_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left_bytes:
            raise ConnectionError("the head of the answer does not end")
        self._sock.settimeout(self._deadline.left_s())
        count = self._sock.recv_into(buffer, min(len(buffer), self._left_bytes))
        self._left_bytes -= count
        return count


def read_answer(sock: socket.socket, deadline: Deadline) -> Answer:
    """Status line and headers, whatever follows them. Raises OSError, ConnectionError if no HTTP.

    Read by hand: http.client and the mail parser behind it trip over lengths, folds and nested
    parts that a hostile answer can hold, and none of these says whether the message was taken.
    """
    reader = io.BufferedReader(_Reads(sock, deadline))
    while True:
        found = _STATUS_LINE.fullmatch(reader.readline())
        if not found:
            raise ConnectionError("the answer is not HTTP")
        headers: dict[str, str] = {}
        while line := reader.readline().rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            headers.setdefault(name.lower(), value.strip())
        status = int(found[1])
        # Before the answer there may be others that only announce it. 101 leaves HTTP for good.
        if status >= 200 or status == 101:
            return Answer(status, headers)


def post(
    url: str, body: bytes, *, headers: Mapping[str, str], deadline_s: float, allow_loopback: bool
) -> Answer:
    """Send and hear the answer. Raises OSError and ForbiddenAddress."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
    deadline = Deadline(deadline_s)
    # Without TLS only to this machine itself, and only where that is allowed.
    sock = open_socket(
        host, port, deadline=deadline, allow_loopback=allow_loopback, allow_public=is_tls
    )
    # Whatever goes wrong from here on, the wrapped socket has taken over the first one's file.
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        if is_tls:
            sock.settimeout(deadline.left_s())
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            stack.callback(sock.close)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        own = {"Host": parts.netloc, "Content-Length": str(len(body)), "Connection": "close"}
        # In one piece: the time-out of sendall is for the whole of what it is given.
        request = _head(f"POST {target} HTTP/1.1", {**own, **headers}) + body
        sock.settimeout(deadline.left_s())
        sock.sendall(request)
        return read_answer(sock, deadline)


def _head(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("a line of the request holds what would end it")
    return "\r\n".join([*lines, "", ""]).encode()
