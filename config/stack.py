"""stack.json: where a running `make demo` says how to reach it, and how other commands find it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
STACK_FILE = "stack.json"


@dataclass(frozen=True)
class Stack:
    """What a running demo publishes: addresses, the demo sign-ins and an API token for scripts."""

    pid: int
    web: str
    database_url: str
    database_owner_url: str
    redis_url: str
    secret_key: str
    sign_ins: dict[str, str]
    api_token: str


def data_folder() -> Path:
    """The demo's data folder: the DATA variable, else `.data` in the checkout."""
    return Path(os.environ.get("DATA") or BASE_DIR / ".data").resolve()


def read_stack(folder: Path) -> Stack | None:
    """The stack whose launcher is alive, or None."""
    try:
        values = json.loads((folder / STACK_FILE).read_text())
        stack = Stack(**values)
        os.kill(stack.pid, 0)
    except PermissionError:
        return stack
    except (OSError, ValueError, TypeError):
        return None
    return stack


def write_stack(folder: Path, stack: Stack) -> None:
    """Publish the stack; the file holds secrets, so only its owner may read it."""
    path = folder / STACK_FILE
    temporary = path.with_suffix(".new")
    temporary.touch(0o600)
    temporary.write_text(json.dumps(stack.__dict__, indent=2) + "\n")
    temporary.replace(path)


def remove_stack(folder: Path) -> None:
    """Take the announcement back when the stack stops."""
    (folder / STACK_FILE).unlink(missing_ok=True)
