"""Make an API token for a user and print its secret, this once."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from disputes.commands import COULD_NOT, OutputLost
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
            said = f"There is no user {options['username']!r}."
            raise CommandError(said, returncode=COULD_NOT)
        longest = ApiToken._meta.get_field("name").max_length or 0
        if not options["name"].strip() or len(options["name"]) > longest:
            raise CommandError(f"--name takes 1 to {longest} characters.", returncode=COULD_NOT)
        try:
            # A token exists only if its secret was written: nobody could ever use it otherwise.
            with transaction.atomic():
                _, secret = issue(user, name=options["name"], scopes=options["scope"])
                self.stdout.write(secret)
                self.stdout.flush()
        except OutputLost as lost:
            said = f"The secret could not be shown ({lost}), so there is no token."
            raise CommandError(said, returncode=COULD_NOT) from None
