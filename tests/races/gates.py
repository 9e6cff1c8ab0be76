"""Deterministic races: one thread stands at a named point until the test lets it go on."""

import threading
from collections.abc import Callable
from contextlib import contextmanager

from django.db import connection

from disputes import failpoints

TIMEOUT_S = 20


class Gate:
    """A place where the first thread that comes by stops; later ones pass."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._first = threading.Lock()

    def __call__(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        self.reached.set()
        assert self.open.wait(TIMEOUT_S), "the test never opened the gate"

    def wait(self) -> None:
        """Until a thread stands at the gate."""
        assert self.reached.wait(TIMEOUT_S), "nobody came to the gate"


@contextmanager
def gate_at(name: str):
    """A gate at a failpoint of this process."""
    gate = Gate()
    failpoints.hooks[name] = gate
    try:
        yield gate
    finally:
        gate.open.set()
        del failpoints.hooks[name]


class Background:
    """A call in a thread of its own; `result()` gives its value or raises its exception."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._value: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 (handed to the test)
            self._error = error
        finally:
            connection.close()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self):
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the thread never ended"
        if self._error is not None:
            raise self._error
        return self._value
