"""Signed webhooks against real servers: what is signed, whom we never call, settings.

Each row of the fault list that is about endpoints has its number in a test's name.
"""

import hashlib
import hmac
import json
import socket
import ssl
import time
from collections import Counter

import pytest
from django.core.checks import run_checks
from django.urls import reverse

from disputes import outbox
from disputes.clock import database_now
from disputes.models import Queue
from escalation import outbound
from escalation.channels import DeliveryFailed, webhook
from escalation.channels.webhook import DEADLINE_S
from escalation.delivery import deliver
from escalation.destinations import switch_on
from escalation.outbound import ForbiddenAddress, is_allowed, post
from tests.escalation.endpoints import (
    NEW,
    OLD,
    PATIENCE_S,
    QUICK_S,
    only_message,
    told,
    try_again,
    use,
)
from tests.escalation.small_servers import CERTIFICATE, Request, answers, http_server
from tests.situations import default_ladder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True


def is_signed(request: Request, secret: str, *, now_s: float) -> bool:
    """What a receiver does, written from the documented format alone."""
    parts = [part.split("=", 1) for part in request.headers["escalations-signature"].split(",")]
    (at,) = (value for name, value in parts if name == "t")
    signed = f"{at}.".encode() + request.body
    right = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    fresh = abs(now_s - int(at)) <= 300
    return fresh and any(hmac.compare_digest(v, right) for name, v in parts if name == "v1")


def test_the_receiver_can_check_the_signature_and_reads_what_happened(settings) -> None:
    with http_server() as server:
        use(settings, ops=server.url)
        dispute = told("ops", reference="D-7 €")
        assert deliver() == Counter(sent=1)
    (request,) = server.requests
    message = only_message()
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["idempotency-key"] == message.idempotency_key
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "id": message.idempotency_key,
        "event": "arrived",
        "dispute_id": str(dispute.pk),
        "reference": "D-7 €",
        "version": 1,
        "ladder": "default",
        "tier": "Standard",
        "amount": "129.00",
        "currency": "USD",
        "due_at": dispute.due_at.isoformat(),
        "link": f"http://testserver/disputes/{dispute.pk}/",
    }
    assert is_signed(request, NEW, now_s=time.time())


def test_f115_old_and_new_secret_both_verify_during_a_rotation(settings) -> None:
    with http_server() as server:
        use(settings, ops=server.url)
        told("ops")
        deliver()
    (request,) = server.requests
    now_s = time.time()
    assert is_signed(request, NEW, now_s=now_s)
    assert is_signed(request, OLD, now_s=now_s)
    assert not is_signed(request, "another-secret-012345", now_s=now_s)
    assert not is_signed(request, NEW, now_s=now_s + 301), "too old"
    request.body += b" "
    assert not is_signed(request, NEW, now_s=now_s), "changed on the way"


def test_f115_pending_messages_use_the_address_and_secrets_of_the_moment_they_leave(
    settings,
) -> None:
    with http_server() as before, http_server() as after:
        use(settings, ops=before.url)
        told("ops")
        settings.WEBHOOKS = {"ops": {"url": after.url, "secrets": ["a-third-secret-01234"]}}
        assert deliver() == Counter(sent=1)
    assert before.connections == 0
    assert is_signed(after.requests[0], "a-third-secret-01234", now_s=time.time())
    assert not is_signed(after.requests[0], NEW, now_s=time.time())


def test_f115_messages_for_an_endpoint_that_was_removed_fail_and_can_be_replayed(settings) -> None:
    with http_server() as server:
        use(settings)
        told("ops")
        assert deliver() == Counter(failed=1)
        assert only_message().last_error == "there is no webhook 'ops'"
        use(settings, ops=server.url)
        outbox.replay(now=database_now())
        assert deliver() == Counter(sent=1)
    assert server.keys() == [only_message().idempotency_key]


def test_f110_a_hanging_endpoint_costs_its_deadline_and_is_tried_again(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "DEADLINE_S", QUICK_S)
    with http_server() as server:
        server.behaviours = [server.hangs, answers(200)]
        use(settings, ops=server.url)
        told("ops")
        started_at = time.monotonic()
        assert deliver() == Counter(pending=1)
        assert QUICK_S <= time.monotonic() - started_at < PATIENCE_S
        assert "TimeoutError" in only_message().last_error
        try_again()
        assert deliver() == Counter(sent=1)
    assert len(set(server.keys())) == 1


def test_f110_an_endpoint_that_never_reads_cannot_hold_the_sender() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        port = listening.getsockname()[1]
        started_at = time.monotonic()
        with pytest.raises(TimeoutError):
            post(
                f"http://127.0.0.1:{port}/",
                b"x" * 50_000_000,
                headers={},
                deadline_s=QUICK_S,
                allow_loopback=True,
            )
        assert time.monotonic() - started_at < PATIENCE_S


def test_f110_a_name_that_is_never_resolved_keeps_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with http_server() as server:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: server.ended.wait(20) and [])
        started_at = time.monotonic()
        with pytest.raises(TimeoutError):
            post(
                "http://slow.example/",
                b"",
                headers={},
                deadline_s=QUICK_S,
                allow_loopback=True,
            )
        assert time.monotonic() - started_at < PATIENCE_S


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_f113_bug_60_a_redirect_is_not_followed(settings, status: int) -> None:
    with http_server() as trap:
        with http_server(answers(status, f"Location: {trap.url}")) as server:
            use(settings, ops=server.url)
            told("ops")
            assert deliver() == Counter(failed=1)
    assert trap.connections == 0
    assert "redirects are not followed" in only_message().last_error


def test_f114_a_certificate_that_nobody_trusts_gets_no_request(settings) -> None:
    with http_server(tls=True) as server:
        use(settings, ops=f"https://localhost:{server.port}/hook")
        told("ops")
        assert deliver() == Counter(pending=1)
        assert server.requests == []
        assert "CERTIFICATE_VERIFY_FAILED" in only_message().last_error


def test_f114_a_trusted_certificate_is_good_for_its_own_names_only(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with http_server(tls=True) as server:
        url = f"https://localhost:{server.port}/"
        assert posted(url).status == 204
        look_up = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: look_up("127.0.0.1", *a, **k)
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            posted(url.replace("localhost", "elsewhere.example"))
        assert len(server.requests) == 1


def posted(url: str) -> outbound.Answer:
    return post(url, b"{}", headers={}, deadline_s=3, allow_loopback=True)


def test_proxies_of_the_environment_are_not_used(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as trap, http_server() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
        use(settings, ops=server.url)
        told("ops")
        assert deliver() == Counter(sent=1)
    assert trap.connections == 0


HOSTS = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "0.0.0.0",
    "localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "10.0.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.168.0.1",
    "255.255.255.255",
    "224.0.0.1",
)


@pytest.mark.parametrize("host", HOSTS)
def test_f147_bug_60_no_address_of_this_machine_or_the_inner_network_is_called(
    settings, host: str
) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    with http_server() as trap:
        use(settings, ops=f"https://{host}:{trap.port}/")
        told("ops")
        started_at = time.monotonic()
        counts = deliver()
        assert time.monotonic() - started_at < webhook.DEADLINE_S, "it was refused, not tried"
    assert trap.connections == 0
    # A resolver may refuse some spellings; then it is a name that does not exist.
    assert counts in (Counter(failed=1), Counter(pending=1))
    reasons = ("not allowed", "cannot be resolved")
    assert any(reason in only_message().last_error for reason in reasons)
    if counts == Counter(pending=1):
        assert "cannot be resolved" in only_message().last_error


def test_f147_bug_60_a_name_that_leads_to_loopback_among_others_is_refused(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    with http_server() as trap:
        target = [resolved("93.184.216.34", trap.port), resolved("127.0.0.1", trap.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: target)
        use(settings, ops=f"https://mixed.example:{trap.port}/")
        told("ops")
        assert deliver() == Counter(failed=1)
    assert trap.connections == 0


def test_f147_bug_60_a_name_that_flips_after_the_check_is_asked_for_only_once(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the address that was judged, whatever the name means by then."""
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    monkeypatch.setattr(webhook, "DEADLINE_S", QUICK_S)
    asked = []

    def flips(host: str, port: int, **kwargs: object):
        asked.append(host)
        return [resolved("93.184.216.34" if len(asked) == 1 else "127.0.0.1", port)]

    with http_server() as trap:
        monkeypatch.setattr(outbound.socket, "getaddrinfo", flips)
        monkeypatch.setattr(outbound.socket.socket, "connect", only_numeric(asked))
        use(settings, ops=f"https://flips.example:{trap.port}/")
        told("ops")
        assert deliver() == Counter(pending=1)
    assert asked == ["flips.example", ("93.184.216.34", trap.port)]
    assert trap.connections == 0


def resolved(address: str, port: int):
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


def only_numeric(asked: list):
    """Stands for the network: notes where a connection would have gone, and refuses it."""

    def connect(self: socket.socket, address: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError("no network in this test")

    return connect


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address, allow_loopback=False)


def test_without_tls_only_this_machine_is_called() -> None:
    assert not is_allowed("8.8.8.8", allow_loopback=True, allow_public=False)
    with pytest.raises(ForbiddenAddress):
        post("http://8.8.8.8/", b"", headers={}, deadline_s=3, allow_loopback=True)


def test_allowing_loopback_allows_nothing_else() -> None:
    assert is_allowed("127.0.0.1", allow_loopback=True)
    assert is_allowed("::ffff:127.0.0.1", allow_loopback=True)
    for address in ("10.0.0.1", "169.254.169.254", "0.0.0.0", "fe80::1%eth0", "::"):
        assert not is_allowed(address, allow_loopback=True), address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", "scheme is http"),
        ("ftp://example.com/", "scheme is not https"),
        ("file:///etc/passwd", "scheme is not https"),
        ("gopher://127.0.0.1:6379/_x", "scheme is not https"),
        ("https://user:hush@example.com/", "user name or a password"),
        ("https://example.com@127.0.0.1/", "user name or a password"),
        ("https://", "no host"),
        ("https://example.com:99999/", "no address"),
        ("https://[::1/", "no address"),
        ("https://exa mple.com/", "characters"),
        ("https://example.com/\r\nX: y", "characters"),
        ("https://exämple.com/", "characters"),
        (7, "not a text"),
    ],
)
def test_bug_60_an_address_that_cannot_be_used_stops_the_start_and_is_not_sent_to(
    settings, url, reason: str
) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    use(settings, ops=url)
    (found,) = run_checks(tags=["escalation"])
    assert found.id == "escalation.E021"
    assert reason in found.msg
    assert found.hint
    assert "hush" not in f"{found.msg}{found.hint}"
    if isinstance(url, str):
        with pytest.raises(DeliveryFailed) as failure:
            webhook.Webhook("ops").send(None)
        assert failure.value.permanent


@pytest.mark.parametrize(
    ("values", "id_"),
    [
        ([], "escalation.E020"),
        ({"Ops!": {"url": "https://example.com/", "secrets": [NEW]}}, "escalation.E020"),
        ({"x" * 32: {"url": "https://example.com/", "secrets": [NEW]}}, "escalation.E020"),
        ({"ops": "https://example.com/"}, "escalation.E020"),
        ({"ops": {"url": "https://example.com/"}}, "escalation.E020"),
        (
            {"ops": {"url": "https://example.com/", "secrets": [NEW], "x": 1}},
            "escalation.E020",
        ),
        ({"ops": {"url": "https://example.com/", "secrets": []}}, "escalation.E022"),
        ({"ops": {"url": "https://example.com/", "secrets": NEW}}, "escalation.E022"),
        ({"ops": {"url": "https://example.com/", "secrets": ["hush"]}}, "escalation.E022"),
        ({"ops": {"url": "https://example.com/", "secrets": [NEW, 7]}}, "escalation.E022"),
        ({"ops": {"url": "https://example.com/", "secrets": [NEW] * 6}}, "escalation.E022"),
    ],
)
def test_bad_settings_stop_the_start_with_an_id_and_a_hint(settings, values, id_: str) -> None:
    settings.WEBHOOKS = values
    (found,) = run_checks(tags=["escalation"])
    assert found.id == id_
    assert found.hint
    assert not any(secret in f"{found.msg}{found.hint}" for secret in (NEW, "hush"))


def test_good_settings_pass_and_the_longest_name_fits_the_outbox(settings) -> None:
    name = "x" * 31
    with http_server() as server:
        use(settings, **{name: server.url})
        assert run_checks(tags=["escalation"]) == []
        told(name)
        assert deliver() == Counter(sent=1)


def test_a_production_that_allows_loopback_is_warned_by_the_deployment_check(settings) -> None:
    checks = {"tags": ["escalation"], "include_deployment_checks": True}
    assert [found.id for found in run_checks(**checks)] == ["escalation.W020"]
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    assert run_checks(**checks) == []


def test_a_queue_can_choose_among_the_endpoints_in_the_administration(
    settings, admin_client
) -> None:
    use(settings, ops="https://example.com/")
    default_ladder()
    queue = Queue.objects.get(slug="standard")
    page = reverse("admin:disputes_queue_change", args=[queue.pk])
    assert "webhook ops" in admin_client.get(page).content.decode()
    admin_client.post(page, {"name": queue.name, "channels": ["email", "webhook:ops"]})
    assert Queue.objects.get(slug="standard").channels == ["email", "webhook:ops"]


def test_the_deadline_is_far_below_the_time_that_a_claim_lasts() -> None:
    assert DEADLINE_S <= 10


def test_switching_on_what_is_not_off_changes_nothing() -> None:
    assert switch_on(["webhook:unknown"]) == 0
