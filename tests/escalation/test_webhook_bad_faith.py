"""Endpoints that answer in bad faith: none of it costs more than it may, or sends a message twice.

Each row of the fault list that is about such answers has its number in a test's name.
"""

import gzip
import socket
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.channels import DeliveryFailed, webhook
from escalation.channels.webhook import judge
from escalation.delivery import deliver
from escalation.models import Destination
from escalation.outbound import Deadline, read_answer
from tests.escalation.endpoints import (
    PATIENCE_S,
    defects,
    only_message,
    told,
    try_again,
    use,
)
from tests.escalation.small_servers import Request, answers, http_server, says

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1000000000\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: ",
    ],
    ids=["long", "negative", "no end", "chunk of -1", "huge chunk", "trailer"],
)
def test_f114_of_a_huge_answer_no_more_than_64_kb_is_read(
    settings, head: bytes, status: int
) -> None:
    written = []

    def floods(request: Request, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 %d X\r\n" % status + head)
        try:
            while True:
                written.append(connection.send(b"x" * 65536))
        except OSError:
            return

    with http_server(floods) as server:
        use(settings, ops=server.url)
        told("ops")
        started_at = time.monotonic()
        assert deliver() == (Counter(sent=1) if status == 200 else Counter(failed=1))
        assert time.monotonic() - started_at < webhook.DEADLINE_S
    # The kernel's buffers on both sides take some more than what was read.
    assert sum(written) < 20_000_000


@pytest.mark.parametrize("piece", [b"X: y\r\n", b"X", b"\r\nHTTP/1.1 100 Continue\r\n"])
def test_f114_of_a_head_that_does_not_end_no_more_than_64_kb_is_read(piece: bytes) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.setblocking(False)
            written = here.send(b"HTTP/1.1 100 Continue\r\n" + piece * 100_000)
        with pytest.raises(ConnectionError):
            read_answer(there, Deadline(PATIENCE_S))
        assert written - len(there.makefile("rb").read()) == 65_536


BODIES = {
    "chunk of -5": (b"Transfer-Encoding: chunked", b"-5\r\nabcde\r\n0\r\n\r\n"),
    "chunk of 1_0": (b"Transfer-Encoding: chunked", b"1_0\r\nabc"),
    "chunk of +5": (b"Transfer-Encoding: chunked", b"+5\r\nabcde\r\n0\r\n\r\n"),
    "chunk with a blank": (b"Transfer-Encoding: chunked", b" 5\r\nabcde\r\n0\r\n\r\n"),
    "huge chunk": (b"Transfer-Encoding: chunked", b"f" * 50 + b"\r\nabc"),
    "no chunk": (b"Transfer-Encoding: chunked", b"\xff\0soon"),
    "endless size": (b"Transfer-Encoding: chunked", b"0" * 100_000),
    "chunks and a length": (b"Content-Length: -7\r\nTransfer-Encoding: chunked", b"-2\r\n"),
    "length of -1": (b"Content-Length: -1", b"abc"),
    "length of +5": (b"Content-Length: +5", b"abc"),
    "long length": (b"Content-Length: " + b"9" * 5000, b"abc"),
    "body missing": (b"Content-Length: 5", b""),
    "no colon": (b"this is no header", b""),
    "no name": (b": x", b""),
    "fold": (b" folded\r\nX: y\r\n\tfolded\r\nContent-Type: multipart/mixed;\r\n boundary=x", b""),
    "not ascii": (b"X\xff\0\xe9: \x80\0", b""),
    # The parser of mails that http.client uses takes this for a letter in a letter in a letter…
    "nested": (b"Content-Type: message/rfc822\r\r" * 2000, b""),
}


@pytest.mark.parametrize("kind", BODIES)
def test_f114_after_a_200_nothing_that_follows_sends_the_message_again(
    settings, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    headers, body = BODIES[kind]
    with http_server(says(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\n" + body)) as server:
        use(settings, ops=server.url)
        told("ops")
        assert deliver() == Counter(sent=1)
        assert not defects(caplog)
        try_again()
        assert deliver() == Counter()
    assert len(server.requests) == 1


def test_f114_a_gzip_bomb_is_not_unpacked_and_an_error_text_in_a_200_changes_nothing(
    settings,
) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    with http_server(
        answers(200, "Content-Encoding: gzip", body=bomb), answers(200, body=b'{"error": "no"}')
    ) as server:
        use(settings, ops=server.url)
        told("ops")
        told("ops")
        started_at = time.monotonic()
        assert deliver() == Counter(sent=2)
        assert time.monotonic() - started_at < webhook.DEADLINE_S
    assert "accept-encoding" not in server.requests[0].headers


NOT_HTTP = {
    "nothing": b"",
    "no http": b"garbage\r\n\r\n",
    "another protocol": b"SSH-2.0-garbage\r\n",
    "another version": b"HTTP/2 200 garbage\r\n\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "status with underscore": b"HTTP/1.1 2_00 garbage\r\n\r\n",
    "status with sign": b"HTTP/1.1 +200 garbage\r\n\r\n",
    "status too long": b"HTTP/1.1 2000 garbage\r\n\r\n",
    "status of zeros": b"HTTP/1.1 000 garbage\r\n\r\n",
    "status not ascii": b"HTTP/1.1 \xb2\xb200 garbage\r\n\r\n",
    "zeros": b"\0" * 100_000,
    "endless line": b"HTTP/1.1 200 " + b"y" * 100_000,
    "endless header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
    "announcements": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
}


@pytest.mark.parametrize("kind", NOT_HTTP)
def test_f114_an_answer_that_is_not_http_is_temporary_and_the_endpoint_rests(
    settings, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with http_server(says(NOT_HTTP[kind])) as server:
        use(settings, ops=server.url)
        told("ops")
        assert deliver() == Counter(pending=1)
    assert "garbage" not in only_message().last_error, "what it says is not shown"
    assert Destination.objects.get(pk="webhook:ops").failures == 1
    assert not defects(caplog)


LINES = st.sampled_from(
    [
        b"HTTP/1.1 100 Continue\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"\r\n",
        b"\n",
        b"-5\r\n",
        b" folded\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Type: message/rfc822\r\r\r\n",
        b"Retry-After: 7\r\n",
        b"Retry-After: Mon, 30 Nov 2026 18:02:00 +9999999999999999999\r\n",
    ]
)
STATUSES = st.one_of(st.sampled_from([100, 200, 503]), st.integers(0, 1099))


@given(first=STATUSES, parts=st.lists(st.one_of(LINES, st.binary(max_size=40))))
def test_f114_whatever_the_bytes_are_the_message_is_sent_or_has_failed(
    first: int, parts: list[bytes]
) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(b"HTTP/1.1 %d OK\r\n" % first + b"".join(parts))
        try:
            answer = read_answer(there, Deadline(PATIENCE_S))
            judge(answer.status, answer.headers, now=NOON)
        except (ConnectionError, DeliveryFailed):
            return
    assert 200 <= answer.status < 300
