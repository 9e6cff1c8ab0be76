"""Make an API token for a user and print its secret, this once."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from disputes.permissions import User
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue


class Command(BaseCommand):
    """Prints the secret alone on standard output, so that scripts can read it."""

    help = "Make an API token for a user and print its secret. It is not shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="USERNAME", help="who the token acts as")
        parser.add_argument("--name", required=True, help="what it is for, shown in lists")
        parser.add_argument(
            "--scope",
            action="append",
            required=True,
            choices=ApiToken.Scope.values,
            help="what it may do; may be given more than once",
        )

    def handle(self, *args: object, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']!r}.")
        longest = ApiToken._meta.get_field("name").max_length or 0
        if not options["name"].strip() or len(options["name"]) > longest:
            raise CommandError(f"--name takes 1 to {longest} characters.")
        _, secret = issue(user, name=options["name"], scopes=options["scope"])
        self.stdout.write(secret)
