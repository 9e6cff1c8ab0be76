"""Rules of the house that a tool can check: who may import whom, no migration forgotten."""

from pathlib import Path

import pytest
from django.core.management import call_command
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent


def test_nothing_imports_upward_and_the_towers_never_import_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert broken == 0, capsys.readouterr().out


@pytest.mark.django_db
def test_every_change_of_a_model_has_its_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
