"""Owns `manage.py verify_audit`; its promise: what was tampered with is named, and exits with 1."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from disputes import audit
from disputes.anchor_checks import (
    AnchorFault,
    Finding,
    first_faults,
    verify_exported,
    verify_heads_of,
    verify_stored,
)
from disputes.anchor_files import NotAnAnchorFile, read_chain
from disputes.commands import COULD_NOT, SOMETHING_WRONG
from disputes.models import Anchor

SHOWN_EVERY = 500


class Command(BaseCommand):
    """Recompute every chain, and hold the log against what was anchored."""

    help = (
        "Verify the audit log: gapless versions, hashes, the log adding up to each row, and "
        "everything that was anchored still being there. The first bad entry of each dispute is "
        "named; exit 1 if there is one, 2 if it could not be verified."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dispute", metavar="ID", help="only this dispute")
        parser.add_argument(
            "--anchors",
            metavar="FILE",
            help="compare with anchors that export_anchors wrote, too (- is standard input)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: object, **options: object) -> None:
        dispute_id = None if options["dispute"] is None else _dispute_id(options["dispute"])
        file = None if options["anchors"] is None else str(options["anchors"])
        if dispute_id and file is not None:
            raise CommandError("Give either --dispute or --anchors.", returncode=COULD_NOT)
        self.verified = 0
        self.show = sys.stderr.isatty() and not options["json"]
        try:
            faults, of_anchors = first_faults(self._findings(dispute_id, file))
        except NotAnAnchorFile as refusal:
            raise CommandError(f"{file}: {refusal}", returncode=COULD_NOT) from None
        except (OSError, UnicodeDecodeError) as error:
            said = f"{file} cannot be read: {error}"
            raise CommandError(said, returncode=COULD_NOT) from None
        if dispute_id and not self.verified and not faults:
            # One that is gone is not unknown, as long as something remembers it.
            raise CommandError(f"there is no dispute {dispute_id}", returncode=COULD_NOT)
        self._report(faults, of_anchors, as_json=bool(options["json"]))
        if faults or of_anchors:
            sys.exit(SOMETHING_WRONG)

    def _findings(self, dispute_id: UUID | None, file: str | None) -> Iterator[Finding | None]:
        for fault in audit.verify(dispute_id):
            self.verified += 1
            yield fault
            if self.show and self.verified % SHOWN_EVERY == 0:
                self.stderr.write(f"\r{self.verified} disputes", ending="")
        if dispute_id:
            yield from verify_heads_of(dispute_id)
            return
        yield from verify_stored()
        if file == "-":
            yield from verify_exported(read_chain(sys.stdin))
        elif file is not None:
            with Path(file).open(encoding="utf-8") as lines:
                yield from verify_exported(read_chain(lines))

    def _report(
        self, faults: list[audit.Fault], of_anchors: list[AnchorFault], *, as_json: bool
    ) -> None:
        newest = Anchor.objects.order_by("-number").first()
        anchors = newest.number if newest else 0
        if as_json:
            report = {
                "verified": self.verified,
                "faults": [
                    {"dispute": str(f.dispute_id), "version": f.version, "what": f.what}
                    for f in faults
                ],
                "anchors": anchors,
                "anchor_faults": [{"anchor": f.number, "what": f.what} for f in of_anchors],
            }
            self.stdout.write(json.dumps(report))
            return
        for fault in faults:
            self.stdout.write(f"{fault.dispute_id} version {fault.version}: {fault.what}")
        for of_anchor in of_anchors:
            self.stdout.write(f"anchor {of_anchor.number}: {of_anchor.what}")
        since = f", the newest of {newest.at:%Y-%m-%d %H:%M:%S} UTC" if newest else ""
        self.stdout.write(
            f"{self.verified} disputes verified, {len(faults)} with a fault; "
            f"{anchors} anchors{since}, {len(of_anchors)} faults"
        )


def _dispute_id(text: object) -> UUID:
    try:
        return UUID(str(text))
    except ValueError:
        raise CommandError(f"{text} is not a dispute id", returncode=COULD_NOT) from None
