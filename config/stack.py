"""stack.json: where a running `make demo` says how to reach it, and how other commands find it."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
STACK_FILE = "stack.json"
LOCK_FILE = "lock"


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
    if not is_in_use(folder):
        return None
    try:
        return Stack(**json.loads((folder / STACK_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_in_use(folder: Path) -> bool:
    """Whether a launcher holds the folder's lock; a pid would be fooled by zombies and reuse."""
    try:
        with (folder / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_stack(folder: Path, stack: Stack) -> None:
    """Publish the stack; it holds passwords."""
    write_secret(folder / STACK_FILE, json.dumps(stack.__dict__, indent=2) + "\n")


def write_secret(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(0o600)
    temporary.write_text(text)
    temporary.replace(path)


def remove_stack(folder: Path) -> None:
    """Take the announcement back when the stack stops."""
    (folder / STACK_FILE).unlink(missing_ok=True)
