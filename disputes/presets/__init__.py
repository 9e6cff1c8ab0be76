"""Owns the ladders we ship, as data files here; its promise: what a file says, no more.

They are house defaults, a starting point to copy and edit; loading one never changes a ladder
that exists.
"""

import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from disputes.ladders import PresetTier

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped ladder; `label` says where its numbers come from."""

    slug: str
    name: str
    label: str
    tiers: tuple[PresetTier, ...]


def preset_slugs() -> list[str]:
    """The slugs of all shipped ladders, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_preset(slug: str) -> Preset:
    """The shipped ladder with this slug. Raises KeyError where there is none."""
    if slug not in preset_slugs():
        raise KeyError(slug)
    said = tomllib.loads((FOLDER / f"{slug}.toml").read_text(encoding="utf-8"))
    return Preset(
        slug=slug,
        name=said["name"],
        label=said["label"],
        tiers=tuple(
            PresetTier(
                slug=tier["slug"],
                name=tier["name"],
                sla=timedelta(minutes=tier["span_min"]),
                hold_limit=timedelta(minutes=tier["hold_min"]) if "hold_min" in tier else None,
            )
            for tier in said["tiers"]
        ),
    )
