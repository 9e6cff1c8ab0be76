"""Takes each mechanism of tests/mutants.py out and shows the test that notices.

Promise: the checkout is never touched; a mechanism counts as proved only when its tests pass with
it and one of them fails without it. `python -m tests.mutation [WORD ...]` runs those mutants
whose name has one of the words. Exits 1 when one survives, no longer applies or runs too long.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from config.embedded import EmbeddedServers
from config.local_postgres import remove_outside_data
from config.stack import BASE_DIR
from tests.mutants import MUTANTS, Mutant

LANES = 2
# A mutant may make a test hang; this long is far more than any of the named tests needs.
RUN_TIMEOUT_S = 240
TESTS_FAILED = 1
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)


class Trouble(Exception):
    """The run says nothing about the mechanism."""


def mutated(text: str, mutant: Mutant) -> str:
    """The file without the mechanism. Raises Trouble where the old text is not there once."""
    found = text.count(mutant.old)
    if found != 1:
        raise Trouble(f"its text stands {found} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def copy_tree(target: Path) -> None:
    """Every file of the checkout that git does not ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=BASE_DIR, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (BASE_DIR / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(BASE_DIR / name, target / name)


@dataclass
class Lane:
    """A copy of the checkout and servers of its own: one run at a time."""

    folder: Path
    servers: EmbeddedServers = field(init=False)
    tree: Path = field(init=False)

    def __enter__(self) -> "Lane":
        self.tree = self.folder / "tree"
        copy_tree(self.tree)
        self.servers = EmbeddedServers(self.folder / "data", durable=False).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.stop()
        remove_outside_data(self.folder / "data")

    def run(self, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """The tests in this copy. Raises Trouble where they do not end."""
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--tb=line"]
        words += ["-p", "no:cacheprovider", "--services=env", *tests]
        addresses = self.servers.addresses
        given = {
            "TEST_DATABASE_URL": addresses.database_owner_url,
            "TEST_DATABASE_APP_URL": addresses.database_url,
            "TEST_REDIS_URL": addresses.redis_url,
            # Ahead of the checkout, which an editable installation puts on the path as well.
            "PYTHONPATH": str(self.tree),
            # A compiled file could outlive the mutant that it was made from.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            words,
            cwd=self.tree,
            env=os.environ | given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Trouble(f"its tests ran longer than {RUN_TIMEOUT_S} s") from None
        return subprocess.CompletedProcess(words, process.returncode, output)

    def verdict(self, mutant: Mutant) -> str:
        """The test that fails without the mechanism, "" where none does."""
        path = self.tree / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(text, mutant), encoding="utf-8")
        try:
            done = self.run(mutant.tests)
        finally:
            path.write_text(text, encoding="utf-8")
        if done.returncode not in (0, TESTS_FAILED):
            raise Trouble(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        failed = _FAILED.search(done.stdout)
        return failed[1] if failed else ""


class Report:
    """What was found, one line for each mutant as it comes."""

    def __init__(self, count: int) -> None:
        self.bad: list[str] = []
        self._width = max(len(mutant.name) for mutant in MUTANTS)
        self._left = count
        self._lock = threading.Lock()

    def say(self, mutant: Mutant, words: str, *, good: bool) -> None:
        with self._lock:
            self._left -= 1
            print(f"{mutant.name:{self._width}}  {words}", flush=True)
            if not good:
                self.bad.append(mutant.name)


def work(lane: Lane, mutants: "SimpleQueue[Mutant | None]", report: Report) -> None:
    """Judge mutants until the queue ends."""
    while mutant := mutants.get():
        try:
            killer = lane.verdict(mutant)
        except Trouble as trouble:
            report.say(mutant, f"UNDECIDED: {trouble}", good=False)
            continue
        report.say(mutant, f"killed by {killer}" if killer else "SURVIVED", good=bool(killer))


def refuse_red_tests(lane: Lane, mutants: Sequence[Mutant]) -> None:
    """A test that fails anyway would kill everything. Raises Trouble, naming it."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    done = lane.run(tests)
    if done.returncode:
        raise Trouble(f"the tests fail without any mutant:\n{done.stdout[-3000:]}")
    print(done.stdout.strip().splitlines()[-1], "without any mutant", flush=True)


def judge(mutants: Sequence[Mutant], folder: Path) -> list[str]:
    """Run all, two at a time; returns the names of those that are not proved."""
    report = Report(len(mutants))
    waiting: SimpleQueue[Mutant | None] = SimpleQueue()
    with Lane(folder / "1") as first, Lane(folder / "2") as second:
        refuse_red_tests(first, mutants)
        for mutant in (*mutants, *[None] * LANES):
            waiting.put(mutant)
        with ThreadPoolExecutor(max_workers=LANES) as pool:
            lanes = [pool.submit(work, lane, waiting, report) for lane in (first, second)]
            try:
                for done in lanes:
                    done.result()
            finally:
                # Interrupted: what is running ends, and nothing else begins.
                while not waiting.empty():
                    waiting.get()
                for _ in range(LANES):
                    waiting.put(None)
    return report.bad


def main(words: Sequence[str]) -> int:
    """0 when every chosen mechanism is proved."""
    chosen = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    for mutant in chosen:
        mutated((BASE_DIR / mutant.file).read_text(encoding="utf-8"), mutant)
        if mutant.equivalent:
            print(f"{mutant.name}: equivalent: {mutant.equivalent}")
    to_run = [mutant for mutant in chosen if not mutant.equivalent]
    if not to_run:
        print("No mutant has such a name.")
        return 1
    with tempfile.TemporaryDirectory(prefix="escalations-mutation-") as folder:
        bad = judge(to_run, Path(folder).resolve())
    print(f"{len(to_run)} mutants, {len(to_run) - len(bad)} killed, not proved: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        sys.exit(f"mutation: {trouble}")
