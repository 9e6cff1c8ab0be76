"""Named points at which tests stop, kill or disturb a process. In production they do nothing.

The variable FAILPOINTS names them for real processes, for example
`FAILPOINTS="promote.written=kill,claim.done=raise"`; a test in the same process puts a
function into `hooks`.
"""

import os
import signal
from collections.abc import Callable

hooks: dict[str, Callable[[], None]] = {}


def _from_environment(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


_orders = _from_environment(os.environ.get("FAILPOINTS", ""))


def failpoint(name: str) -> None:
    """Stand still here if a test asked for it."""
    if hooks and (hook := hooks.get(name)):
        hook()
    if _orders and (order := _orders.get(name)):
        _obey(name, order)


def _obey(name: str, order: str) -> None:
    kind, _, rest = order.partition(":")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "raise":
        raise RuntimeError(f"failpoint {name}")
    elif kind == "killonce":
        # `rest` is a file: the first process to remove it dies, the next ones go on.
        try:
            os.unlink(rest)
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "block":
        # `rest` is a FIFO that the test opens for writing to let us go on.
        with open(rest) as gate:
            gate.read()
