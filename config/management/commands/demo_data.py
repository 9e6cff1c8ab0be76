"""Owns `manage.py demo_data`; its promise: run again, it changes nothing and shows no secret."""

import json
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.core.management.base import BaseCommand
from django.db import transaction

from config.samples import sample_files
from disputes.clock import database_now
from disputes.intake.effects import Effect
from disputes.intake.formats import open_records
from disputes.intake.importing import import_records
from disputes.ladders import PresetTier, create_ladder
from disputes.models import Dispute, Queue
from disputes.permissions import User
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue

LADDER = "default"
TOKEN_NAME = "demo"  # noqa: S105 (a name, not a secret)
SCOPES = ("disputes:read", "disputes:write", "disputes:act")

# Short enough to watch; the shipped preset has a day and more.
TIERS = (
    PresetTier("standard", "Standard", timedelta(seconds=40), timedelta(minutes=2)),
    PresetTier("senior", "Senior", timedelta(seconds=60), timedelta(minutes=2)),
    PresetTier("compliance", "Compliance", timedelta(seconds=90), timedelta(minutes=3)),
)
# Who reviews which queue; admin is a superuser and needs none.
REVIEWERS = {"ada": "standard", "ben": "standard", "sam": "senior", "cleo": "compliance"}
LEAD = "lea"
LEAD_RIGHTS = ("assign", "override_hold", "reopen", "approve", "review", "operate")
ADMIN = "admin"

# Easy to type, and not the same in two demos.
WORDS = (
    "amber badger comet dolphin ember falcon garden harbor island jasmine kettle lantern meadow "
    "nutmeg orchid pebble quartz river saddle timber umber velvet willow yonder"
).split()


class Command(BaseCommand):
    """Fill an empty database for the demo."""

    help = (
        "Create the demo's ladder with short spans, its people and sample disputes, for "
        "`make demo`. The last line printed is JSON: sign-ins and an API token the first time, "
        '{"existing": true} later.'
    )

    def handle(self, *args: Any, **options: Any) -> None:
        # The token is made last, so that an interrupted first run is done again as a whole.
        if ApiToken.objects.filter(name=TOKEN_NAME, user__username=ADMIN).exists():
            self.stdout.write(json.dumps({"existing": True}))
            return
        create_ladder(LADDER, name="Disputes", tiers=TIERS, now=database_now())
        sign_ins = {name: make_person(name) for name in (ADMIN, *REVIEWERS, LEAD)}
        count = import_samples(now=database_now())
        self.stdout.write(f"{count} sample disputes")
        # What nobody could be shown is made again by the next run.
        with transaction.atomic():
            _, token = issue(User.objects.get(username=ADMIN), name=TOKEN_NAME, scopes=SCOPES)
            self.stdout.write(json.dumps({"sign_ins": sign_ins, "api_token": token}))
            self.stdout.flush()


def make_person(name: str) -> str:
    """The person with their groups and rights and a new password, which is returned."""
    password = (
        f"{secrets.choice(WORDS)}-{secrets.choice(WORDS)}-{10_000 + secrets.randbelow(90_000)}"
    )
    person, _ = User.objects.get_or_create(username=name)
    person.email = f"{name}@demo.example"
    person.first_name = name.capitalize()
    person.is_staff = person.is_superuser = name == ADMIN
    person.set_password(password)
    person.save()
    if slug := REVIEWERS.get(name):
        group, _ = Group.objects.get_or_create(name=f"{slug.capitalize()} reviewers")
        person.groups.add(group)
        Queue.objects.get(ladder__slug=LADDER, slug=slug).reviewers.add(group)
    if name == LEAD:
        rights = Permission.objects.filter(
            content_type__app_label=Dispute._meta.app_label, codename__in=LEAD_RIGHTS
        )
        person.user_permissions.add(*rights)
    return password


def import_samples(*, now: datetime) -> int:
    """Import the sample files; returns how many disputes they made."""
    created = 0
    for name, file in sample_files(now=now):
        records = open_records(file, name=name, now=now)
        created += sum(stored.effect == Effect.CREATED for _, stored in import_records(records))
    return created
