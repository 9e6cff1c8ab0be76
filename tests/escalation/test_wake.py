"""A poller at rest hears what is due earlier than it meant to look."""

import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.local_valkey import redis_url, start_valkey
from config.server_child import ServerChild
from escalation import timeline
from escalation.timeline import Entry
from escalation.wake import Waker

LONG_S = 20.0
SHORT_S = 0.3


def schedule(look_at_us: int) -> None:
    timeline.schedule(
        [Entry(str(uuid.uuid4()), look_at_us, 1, "standard", "1250.00", "a1" * 32)],
    )


@pytest.fixture(autouse=True)
def _own_channel(settings) -> None:
    """Channels are the server's, not a database's: tests beside this one use them too."""
    settings.ESCALATION = {"prefix": f"{secrets.token_hex(8)}:"}


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def waker(stop) -> Iterator[Waker]:
    """A waker that has heard that it is subscribed."""
    waker = Waker(stop=stop)
    assert waker.wait(timeout_s=LONG_S)
    yield waker
    waker.close()


def test_the_first_wait_wakes_at_once_since_nothing_was_heard_before_it(stop):
    waker = Waker(stop=stop)
    schedule(5)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1)
    waker.close()


def test_an_earlier_entry_wakes(waker):
    schedule(999)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1_000)


def test_an_entry_that_is_not_earlier_wakes_nobody(waker):
    schedule(1_000)
    assert not waker.wait(timeout_s=SHORT_S, earlier_than_us=1_000)


def test_of_a_batch_the_earliest_entry_counts_wherever_it_stands(waker):
    entries = [
        Entry(str(uuid.uuid4()), look_at_us, 1, "standard", "1.00", "a1" * 32)
        for look_at_us in (3_000, 999, 2_000)
    ]
    timeline.schedule(entries)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1_000)


def test_an_entry_wakes_although_earlier_members_are_locked(waker):
    schedule(1)
    assert timeline.claim(now_us=10, limit=1, token="drain").ids
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1_000)
    schedule(500)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1_000)


def test_a_refused_entry_wakes_nobody(waker):
    one = str(uuid.uuid4())
    timeline.unschedule([(one, 2)])
    timeline.schedule([Entry(one, 5, 1, "standard", "1.00", "a1" * 32)])
    assert not waker.wait(timeout_s=SHORT_S)


def test_every_poller_is_woken(waker, stop):
    second = Waker(stop=stop)
    assert second.wait(timeout_s=LONG_S)
    schedule(5)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=10)
    assert second.wait(timeout_s=LONG_S, earlier_than_us=10)
    second.close()


def test_a_wait_during_which_nothing_comes_ends_in_time(waker):
    started = time.monotonic()
    assert not waker.wait(timeout_s=SHORT_S)
    assert SHORT_S <= time.monotonic() - started < LONG_S


def test_a_stop_ends_the_wait(waker, stop):
    threading.Timer(0.1, stop.set).start()
    started = time.monotonic()
    assert not waker.wait(timeout_s=LONG_S)
    assert time.monotonic() - started < LONG_S


def test_deployments_do_not_wake_each_other(waker, settings):
    settings.ESCALATION = {"prefix": "stage:"}
    schedule(5)
    assert not waker.wait(timeout_s=SHORT_S)


@pytest.fixture
def own_server(settings, tmp_path: Path) -> Iterator[ServerChild]:
    """A server that a test may stop and start again."""
    password = secrets.token_hex(8)
    child = start_valkey(tmp_path, password, durable=False)
    settings.TIMELINE_REDIS_URL = redis_url(child.port, password)
    yield child
    child.stop()


def test_without_a_server_the_wait_lasts_as_long_and_raises_nothing(own_server, stop):
    waker = Waker(stop=stop)
    assert waker.wait(timeout_s=LONG_S)
    own_server.stop()
    started = time.monotonic()
    assert not waker.wait(timeout_s=1.5)
    assert 1.5 <= time.monotonic() - started < LONG_S
    waker.close()


def test_a_server_that_came_back_wakes_since_messages_may_have_been_lost(own_server, stop):
    waker = Waker(stop=stop)
    assert waker.wait(timeout_s=LONG_S)
    own_server.stop()
    assert not waker.wait(timeout_s=SHORT_S)
    own_server.start_again()
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=1)
    schedule(5)
    assert waker.wait(timeout_s=LONG_S, earlier_than_us=10)
    waker.close()
