"""The API on the web server that `make demo` starts: what only a real server shows."""

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.demo_parts import commands_for, environment_for, wait_for_web
from config.embedded import Addresses
from config.server_child import HOST, free_port
from config.stack import BASE_DIR
from config.supervisor import Supervisor
from disputes.ladders import forget_cached_tiers
from disputes.models import Dispute
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue
from tests.faults.harness import database_address
from tests.situations import again, default_ladder, opened, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

TAKE = "/api/v1/queues/default/standard/take-next"


class Web:
    """A connection to the server, and what the server wrote in the terminal."""

    def __init__(self, port: int, said: list[str]) -> None:
        self.connection = http.client.HTTPConnection(HOST, port, timeout=30)
        self.said = said
        _, self.secret = issue(person("ann", "standard"), name="t", scopes=ApiToken.Scope.values)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple:
        """The status, the media type, and the answer's JSON (its text where it is none)."""
        told = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}
        self.connection.request(method, path, body, told | headers)
        answer = self.connection.getresponse()
        text, kind = answer.read().decode(), answer.headers["Content-Type"] or ""
        return answer.status, kind, json.loads(text) if "json" in kind else text


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """The demo's own web process, with the demo's settings, on this test's database and Redis."""
    forget_cached_tiers()
    default_ladder()
    port, said = free_port(), []
    url = database_address()
    environment = environment_for(
        tmp_path, Addresses(url, url, os.environ["REDIS_URL"]), f"http://{HOST}:{port}"
    )
    commands = {"web": commands_for(port)["web"]}
    supervisor = Supervisor(commands, BASE_DIR, said.append, environment)
    try:
        wait_for_web(supervisor, port)
        talk = Web(port, said)
        yield talk
        talk.connection.close()
    finally:
        supervisor.stop()


def test_a_body_in_chunks_is_411_whatever_it_was_sent_to_and_nothing_is_done(web):
    dispute = opened()
    addresses = ["/api/v1/disputes", f"/api/v1/disputes/{dispute.pk}/acknowledge", TAKE]
    for address in addresses:
        # http.client sends in chunks what has no length of its own.
        body = iter([b'{"reference": "x",', b' "seen_version": 1}'])
        status, kind, said = web.ask("POST", address, body)
        assert (address, status, kind) == (address, 411, "application/problem+json")
        assert said["code"] == "length_required"
        assert "Content-Length" in said["detail"]
    assert Dispute.objects.count() == 1
    assert again(dispute).version == 1
    # The connection is as good as before: what was not read of the body is no second request.
    assert web.ask("POST", "/api/v1/disputes", '{"reference": "x"}')[0] == 201


def test_a_host_that_is_not_ours_is_a_problem_for_programs_and_a_line_in_the_log(web):
    status, kind, said = web.ask("GET", "/api/v1/queues", Host="evil.example")
    assert (status, kind, said["code"]) == (400, "application/problem+json", "bad_request")
    assert "Host header" in said["detail"]
    status, kind, text = web.ask("GET", "/queues/", Host="evil.example")
    assert (status, kind) == (400, "text/html; charset=utf-8")
    assert "This request cannot be understood" in text
    assert web.ask("GET", "/api/v1/queues")[0] == 200
    assert any("evil.example" in line and "ALLOWED_HOSTS" in line for line in web.said)
    assert [line for line in web.said if "Traceback" in line] == []
