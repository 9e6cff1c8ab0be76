"""Recompute the hash chain of the audit log."""

import json
import sys
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from disputes import audit
from disputes.models import Dispute


class Command(BaseCommand):
    help = "Verify the audit log: gapless versions, hashes, and the log adding up to each row."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dispute", metavar="ID", help="only this dispute")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: object, **options: object) -> None:
        dispute_id = self._dispute_id(options["dispute"]) if options["dispute"] else None
        verified = 0
        faults = []
        show = sys.stderr.isatty() and not options["json"]
        for fault in audit.verify(dispute_id):
            verified += 1
            if fault is not None:
                faults.append(fault)
            if show and verified % 500 == 0:
                self.stderr.write(f"\r{verified} disputes", ending="")
        if options["json"]:
            self.stdout.write(
                json.dumps(
                    {
                        "verified": verified,
                        "faults": [
                            {"dispute": str(f.dispute_id), "version": f.version, "what": f.what}
                            for f in faults
                        ],
                    }
                )
            )
        else:
            for fault in faults:
                self.stdout.write(f"{fault.dispute_id} version {fault.version}: {fault.what}")
            self.stdout.write(f"{verified} disputes verified, {len(faults)} with a fault")
        if faults:
            sys.exit(1)

    def _dispute_id(self, text: object) -> UUID:
        try:
            dispute_id = UUID(str(text))
        except ValueError:
            raise CommandError(f"{text} is not a dispute id") from None
        if not Dispute.objects.filter(pk=dispute_id).exists():
            raise CommandError(f"there is no dispute {dispute_id}")
        return dispute_id
