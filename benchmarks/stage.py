"""Real servers for a benchmark: durable, in a temporary folder, gone afterwards."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import django

from config.embedded import EmbeddedServers

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def stage() -> Iterator[None]:
    """PostgreSQL (synchronous commits) and Valkey (append-only file), Django set up on them."""
    with (
        tempfile.TemporaryDirectory(prefix="escalations-bench-") as folder,
        EmbeddedServers(Path(folder)) as servers,
    ):
        addresses = servers.addresses
        os.environ |= {
            "DATABASE_URL": addresses.database_url,
            "DATABASE_OWNER_URL": addresses.database_owner_url,
            "REDIS_URL": addresses.redis_url,
            "SECRET_KEY": secrets.token_hex(),
            "HTTPS": "false",
            "LOG_LEVEL": "WARNING",
            "LOG_FORMAT": "plain",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        manage("migrate", "--database=owner", "--verbosity=0")
        django.setup()
        yield


def manage(*words: str) -> None:
    """Run a management command and wait for it."""
    subprocess.run([sys.executable, ROOT / "manage.py", *words], check=True, cwd=ROOT)


@contextmanager
def processes(*commands: tuple[str, ...]) -> Iterator[None]:
    """Management commands beside us, stopped at the end."""
    running = [
        subprocess.Popen(
            [sys.executable, ROOT / "manage.py", *words], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        for words in commands
    ]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def make_ladder(*, span: timedelta = timedelta(hours=2)) -> None:
    """The default ladder with one reviewer in each queue: one recipient a message."""
    # Imported late: Django must be set up, which is what stage() does.
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group

    from disputes.clock import database_now
    from disputes.ladders import PresetTier, create_ladder
    from disputes.models import Queue

    tiers = [PresetTier(name, name, span, span) for name in ("standard", "senior", "compliance")]
    create_ladder("default", name="Default", tiers=tiers, now=database_now(), channels=("log",))
    for queue in Queue.objects.all():
        group = Group.objects.create(name=queue.slug)
        queue.reviewers.add(group)
        group.user_set.add(get_user_model().objects.create_user(queue.slug))


def open_many(number: int, *, due_at: list[datetime], batch: int = 500) -> None:
    """Open disputes with these deadlines, no messages."""
    from disputes.clock import database_now
    from disputes.transitions.journal import Actor
    from disputes.transitions.opening import NewDispute, open_disputes

    run = secrets.token_hex(4)
    for start in range(0, number, batch):
        open_disputes(
            [
                NewDispute(
                    source="bench",
                    reference=f"{run}-{start + n}",
                    source_hash="a" * 64,
                    due_at=due,
                )
                for n, due in enumerate(due_at[start : start + batch])
            ],
            actor=Actor(None, "bench"),
            now=database_now(),
            notify=False,
        )
