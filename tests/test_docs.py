"""What the documents name exists, and what a reader needs is in them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from config.stack import BASE_DIR
from disputes.exceptions import DisputeError
from disputes.intake.effects import Effect
from disputes.intake.facts import Outcome as ImportOutcome
from disputes.intake.generic import ALIASES, STATES
from disputes.invariants import QUERIES
from disputes.models import Dispute
from disputes.rules import Outcome
from escalation.conf import KNOBS
from reviewqueue.api.app import api
from reviewqueue.models import ApiToken

ROOMS = ("config", "disputes", "escalation", "reviewqueue")
DOCUMENTS = sorted(
    path.relative_to(BASE_DIR).as_posix()
    for path in (*BASE_DIR.glob("*.md"), *BASE_DIR.glob("docs/*.md"))
)
ENVIRONMENT_READ = re.compile(
    r"""(?:env\.\w+|_required|_json|environ\.get)\(\s*"([A-Z][A-Z_]+)"|environ\["([A-Z][A-Z_]+)"\]"""
)
# A link's text may hold brackets, its target may not.
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FILE_NAME = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|html|toml|txt|sh|png)|(?:[\w.-]+/)+)`")
# Ours only by a default of theirs; their help is their own.
OF_OTHER_PACKAGES = {"migrate", "rqworker"}
# Made by a demo or by make, not in the checkout.
ELSEWHERE = {"stack.json", ".venv/"}
WORD = re.compile(r"`([a-z]\w*_\w+)`")


def text_of(document: str) -> str:
    return (BASE_DIR / document).read_text(encoding="utf-8")


def everything() -> str:
    return "\n".join(map(text_of, DOCUMENTS))


def sources(*patterns: str) -> list[Path]:
    return [
        path for room in ROOMS for pattern in patterns for path in (BASE_DIR / room).rglob(pattern)
    ]


@cache
def names_of_tests(file: str) -> frozenset[str]:
    tree = ast.parse(text_of(file))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def anchors_of(document: str) -> set[str]:
    """The headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def read_variables() -> set[str]:
    """Every environment variable that the product's own code reads."""
    found: set[str] = set()
    for path in sources("*.py"):
        for pair in ENVIRONMENT_READ.findall(path.read_text(encoding="utf-8")):
            found.update(filter(None, pair))
    return found


def test_the_first_lines_of_the_readme_are_the_two_commands() -> None:
    code = re.findall(r"^    (\S.*)$", text_of("README.md"), re.MULTILINE)
    assert [line.split("#")[0].strip() for line in code[:2]] == ["make demo", "make test"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_that_is_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    |\$ )make ([a-z-]+)", text_of(document), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document: str) -> None:
    for link in LINK.findall(text_of(document)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (BASE_DIR / document).parent / path if path else BASE_DIR / document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target.resolve().relative_to(BASE_DIR).as_posix()), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document: str) -> None:
    for file, name in TEST_ID.findall(text_of(document)):
        assert (BASE_DIR / file).is_file(), file
        assert name in names_of_tests(file), f"{file}::{name}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_folder_that_is_named_exists(document: str) -> None:
    folders = [BASE_DIR, BASE_DIR / "disputes/transitions"]
    for name in set(FILE_NAME.findall(text_of(document))) - ELSEWHERE:
        assert any((folder / name).exists() for folder in folders), name


@pytest.mark.parametrize("document", ["docs/guarantees.md", "docs/life-of-a-dispute.md"])
def test_every_function_constraint_and_trigger_that_is_named_exists(document: str) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources("*.py"))
    known = set(re.findall(r"\w+", code)) | set(get_commands())
    assert set(WORD.findall(text_of(document))) <= known


def test_every_promise_of_the_readme_names_a_test() -> None:
    promises = text_of("README.md").split("## What it promises")[1].split("\n## ")[0]
    numbered = re.split(r"^\d\. ", promises, flags=re.MULTILINE)[1:]
    assert len(numbered) == 6
    assert all(TEST_ID.search(promise) for promise in numbered)


def test_every_command_is_documented_and_says_what_it_is_for() -> None:
    ours = {name: app for name, app in get_commands().items() if app in ROOMS}
    assert {"demo", "run_poller", "import_disputes", "rqworker"} <= set(ours)
    for name, app in ours.items():
        assert f"| `{name}` |" in text_of("docs/operations.md"), name
        if name in OF_OTHER_PACKAGES:
            continue
        command = load_command_class(app, name)
        assert len(command.help) > 20, name
        undocumented = [
            action.dest
            for action in command.create_parser("manage.py", name)._actions
            if not action.help and not action.choices
        ]
        assert undocumented == [], name


def test_every_knob_is_documented_with_its_default_and_range() -> None:
    rows = [line for line in text_of("docs/settings.md").splitlines() if line.startswith("| `")]
    for knob in KNOBS:
        (row,) = (row for row in rows if row.startswith(f"| `{knob.name}` |"))
        _, _, default, legal, *_ = (cell.strip() for cell in row.split("|"))
        if knob.low is None:
            continue
        assert float(default) == knob.default, knob.name
        assert legal.split(",")[0] == f"{knob.low} to {knob.high}", knob.name
        assert ("whole" in legal) == isinstance(knob.default, int), knob.name


def test_every_variable_that_is_read_is_documented() -> None:
    read = read_variables()
    assert {"DATABASE_URL", "ESCALATION", "PG_BIN", "FAILPOINTS"} <= read
    documented = set(re.findall(r"`([A-Z][A-Z_]+)`", text_of("docs/settings.md")))
    assert read - {"DJANGO_SETTINGS_MODULE"} <= documented


def test_every_variable_in_the_tables_is_read() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", text_of("docs/settings.md"), re.MULTILINE)
    documented = set(re.findall(r"`([A-Z_]+)`", " ".join(rows)))
    makefile = set(re.findall(r"^([A-Z]+) \?=", text_of("Makefile"), re.MULTILINE))
    assert documented <= read_variables() | makefile


def test_every_outcome_of_the_clock_is_explained() -> None:
    operations = text_of("docs/operations.md")
    assert [word for word in Outcome if f"| `{word}` |" not in operations] == []
    assert "| `PROMOTED_TO_<TIER>` |" in operations
    symptoms = ("DOUBLE_ESCALATION", "CLOCK_SKEW", "STUCK_MEMBER", "LOCK_CONTENTION", "ZSET_DRIFT")
    assert [word for word in symptoms if f"### {word}\n" not in operations] == []


def test_every_word_of_an_import_report_is_explained() -> None:
    page = text_of("docs/import.md")
    words = [*ImportOutcome, *Effect, *ALIASES, *sum(ALIASES.values(), ()), *STATES]
    assert [word for word in words if f"`{word}`" not in page] == []


def test_every_invariant_is_listed() -> None:
    page = text_of("docs/guarantees.md")
    assert [name for name in QUERIES if f"- {name}\n" not in page] == []


def test_every_operation_of_the_api_has_a_section() -> None:
    operations = {
        f"### {method.upper()} {path.removeprefix('/api/v1').replace('dispute_id', 'id')}"
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method in methods
    }
    assert len(operations) > 4
    assert operations == set(re.findall(r"^### [A-Z]+ /.*$", text_of("docs/api.md"), re.MULTILINE))


def test_every_code_scope_and_right_of_the_api_is_documented() -> None:
    page = text_of("docs/api.md")
    package = "\n".join(path.read_text() for path in (BASE_DIR / "reviewqueue/api").glob("*.py"))
    codes = set(re.findall(r"""\bcode ?= ?"(\w+)\"""", package))
    codes |= {kind.code for kind in refusals(DisputeError)} - {"ladder", "dispute_error"}
    assert {"busy", "invalid", "throttled"} <= codes
    rights = [codename for codename, _ in Dispute._meta.permissions]
    words = [*codes, *ApiToken.Scope.values, *rights]
    assert [word for word in words if f"`{word}`" not in page] == []


def refusals(base: type[DisputeError]) -> set[type[DisputeError]]:
    """The classes below this one, however deep."""
    below = set(base.__subclasses__())
    return below.union(*map(refusals, below)) if below else below


def test_the_picture_is_small_enough_for_a_slow_line() -> None:
    picture = BASE_DIR / "docs/queue.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size <= 150_000


def test_the_documents_speak_of_no_machine() -> None:
    assert re.findall(r"/(?:work|tmp|root|home)/\S*", everything()) == []
