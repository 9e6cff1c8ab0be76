"""Owns `manage.py export_anchors`; its promise: the file appears whole or not at all."""

import os
import sys
import tempfile
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError, CommandParser

from disputes.anchor_files import write_chain
from disputes.anchors import stored_chain
from disputes.commands import COULD_NOT


class Command(BaseCommand):
    """Write anchors where the owner of this database cannot reach them."""

    help = (
        "Write the anchors of the audit log as JSON lines, to be kept away from this database. "
        "`verify_audit --anchors FILE` compares with them later."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", nargs="?", default="-", metavar="FILE", help="- is standard output (default)"
        )
        parser.add_argument(
            "--since", type=int, default=0, metavar="N", help="only anchors after number N"
        )

    def handle(self, *args: object, **options: object) -> None:
        name, since = str(options["file"]), int(str(options["since"]))
        chain = stored_chain(since=since)
        if name == "-":
            anchors = write_chain(chain, lambda text: self.stdout.write(text, ending=""))
            self.stdout.flush()
            sys.stderr.write(f"{anchors} anchors\n")
            return
        try:
            # What a link names is replaced, not the link; a device or a pipe is never replaced.
            target = Path(name).resolve()
            if target.exists() and not target.is_file():
                said = f"{name} is no file; - writes to standard output"
                raise CommandError(said, returncode=COULD_NOT)
            with tempfile.NamedTemporaryFile(
                "w", dir=target.parent, prefix=f".{target.name}-", encoding="utf-8", delete=False
            ) as half:
                try:
                    anchors = write_chain(chain, half.write)
                    half.flush()
                    os.fsync(half.fileno())
                    os.replace(half.name, target)
                except BaseException:
                    os.unlink(half.name)
                    raise
        except (OSError, RuntimeError) as error:  # the latter for links in a circle
            said = f"{name} cannot be written: {error}"
            raise CommandError(said, returncode=COULD_NOT) from None
        self.stdout.write(f"{anchors} anchors written to {name}")
