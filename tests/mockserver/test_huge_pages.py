"""A command that starts anew on huge pages: the same command, with its memory where it asked for it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import loadgen.__main__
import loadgen.commands
import mockserver.__main__
from mockserver import huge_pages

_NAMES = ("PYTHONMALLOC", "GLIBC_TUNABLES", "REPLAYRIG_HUGE_PAGES")
_WHAT_IT_FINDS = """
import json, os, sys
from mockserver import huge_pages
huge_pages.restart()
objects = [bytes(100) for _ in range(400_000)]
with open("/proc/self/smaps_rollup") as rollup:
    kb = next(int(line.split()[1]) for line in rollup if line.startswith("AnonHugePages"))
names = ("PYTHONMALLOC", "GLIBC_TUNABLES", "REPLAYRIG_HUGE_PAGES")
print(json.dumps({"pid": os.getpid(), "argv": sys.argv[1:], "stdin": sys.stdin.read(), "huge_kb": kb,
                  "environ": {name: os.environ[name] for name in names if name in os.environ}}))
"""


def _find(tmp_path: Path, **environ: str) -> dict[str, object]:
    """What a process that asks for huge pages finds; its pid is the one that was started."""
    script = tmp_path / "script.py"
    script.write_text(_WHAT_IT_FINDS)
    clean = {name: value for name, value in os.environ.items() if name not in _NAMES}
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(script), "an argument", "--flag=ü"],
        env=clean | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdout, _ = process.communicate("what was piped in", timeout=60)
        assert process.returncode == 0
    found: dict[str, object] = json.loads(stdout)
    assert found.pop("pid") == process.pid
    return found


def _skip_without_huge_pages() -> None:
    if "GLIBC_TUNABLES" not in huge_pages.environ():
        pytest.skip("the system has no huge pages for those who ask (transparent_hugepage/enabled, or its C library)")


def test_a_process_starts_anew_and_is_the_same_otherwise(tmp_path: Path) -> None:
    _skip_without_huge_pages()
    found = _find(tmp_path)
    assert isinstance(found["huge_kb"], int)
    assert found["huge_kb"] > 40_000, "400,000 objects of 100 bytes and more"
    assert found["argv"] == ["an argument", "--flag=ü"]
    assert found["stdin"] == "what was piped in"
    assert found["environ"] == {}, "what this process starts decides for itself"


_WHAT_COMES_AND_GOES = """
import gc, sys, threading, weakref
from concurrent.futures import ThreadPoolExecutor

def deep(left):
    return [left, deep(left - 1)] if left else []

def come_and_go(_):
    for _ in range(3):
        kept = [{number: str(number)} for number in range(60_000)]
        assert sum(len(one) for one in kept) == 60_000
        nested = deep(900)
        del kept, nested
        gc.collect()

before = len(gc.get_objects())
with ThreadPoolExecutor(4) as threads:
    list(threads.map(come_and_go, range(8)))
come_and_go(0)
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
class Last:
    def __del__(self):
        sys.stdout.write("the end")
last = Last()
last.circle = last
"""


def test_memory_comes_and_goes_and_the_process_ends_in_order(tmp_path: Path) -> None:
    _skip_without_huge_pages()
    (tmp_path / "what_comes_and_goes.py").write_text(_WHAT_COMES_AND_GOES)
    for _ in range(3):  # addresses are other ones each time
        done = subprocess.run(
            huge_pages.command("what_comes_and_goes"),
            env=huge_pages.environ() | {"PYTHONPATH": os.pathsep.join((str(tmp_path), os.getcwd()))},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "the end", "")


_WHAT_WAS_THERE_GOES = """
import sys
there = [bytes(63) for _ in range(100_000)]
del there[::2]
from mockserver import huge_pages
if sys.argv[1:] == ["heap unseen"]:
    huge_pages._heap_begin = lambda: 1 << 62
huge_pages.restart()
assert (len(huge_pages._FOR_GOOD) > 1) == (sys.argv[1:] != ["heap unseen"])
there.clear()
more = [bytes(63) for _ in range(100_000)]
sys.stdout.write("the end")
"""


@pytest.mark.parametrize("arguments", [[], ["heap unseen"]])
def test_what_lay_in_the_first_arenas_can_go(arguments: list[str], tmp_path: Path) -> None:
    _skip_without_huge_pages()
    script = tmp_path / "script.py"
    script.write_text(_WHAT_WAS_THERE_GOES)
    environ = huge_pages.environ() | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end", "")


def test_a_module_is_started_with_its_arguments_on_huge_pages(tmp_path: Path) -> None:
    _skip_without_huge_pages()
    (tmp_path / "what_it_finds.py").write_text(_WHAT_IT_FINDS)
    done = subprocess.run(
        huge_pages.command("what_it_finds", "an argument"),
        env=huge_pages.environ() | {"PYTHONPATH": os.pathsep.join((str(tmp_path), os.getcwd()))},
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["argv"] == ["an argument"]
    assert found["huge_kb"] > 40_000
    assert found["environ"] == {}


def test_a_python_that_has_not_been_tried_leaves_its_objects_to_malloc() -> None:
    code = (
        "import sys; sys.version_info = (3, 99); from mockserver import huge_pages; print(sorted(huge_pages._SETTINGS))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "['GLIBC_TUNABLES', 'PYTHONMALLOC']"


@pytest.mark.parametrize(
    "chosen", [{"REPLAYRIG_HUGE_PAGES": "0"}, {"PYTHONMALLOC": "pymalloc"}, {"GLIBC_TUNABLES": "glibc.malloc.check=0"}]
)
def test_who_has_chosen_an_allocator_or_said_no_keeps_it(tmp_path: Path, chosen: dict[str, str]) -> None:
    found = _find(tmp_path, **chosen)
    assert found["environ"] == chosen
    assert found["argv"] == ["an argument", "--flag=ü"]


@pytest.mark.parametrize("modes", ["[always] madvise never", "always madvise [never]", None])
def test_nothing_is_asked_for_where_there_is_nothing_to_have(
    modes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enabled"
    if modes is not None:
        path.write_text(modes)
    monkeypatch.setattr(huge_pages, "_MODES", path)
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("started anew"))
    assert huge_pages.environ() == dict(os.environ)
    huge_pages.restart()


@pytest.mark.parametrize(
    ("said", "is_new_enough"), [("glibc 2.36", True), ("glibc 2.35", True), ("glibc 2.31", False), (None, False)]
)
def test_glibc_has_to_be_new_enough(
    said: str | None, is_new_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never")
    monkeypatch.setattr(huge_pages, "_MODES", path)
    monkeypatch.setattr(os, "confstr", lambda _: said)
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    assert ("GLIBC_TUNABLES" in huge_pages.environ()) == is_new_enough


def test_a_start_that_fails_is_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never")
    monkeypatch.setattr(huge_pages, "_MODES", path)
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.36")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no such file"))
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    huge_pages.restart()
    assert "REPLAYRIG_HUGE_PAGES" not in os.environ


class _StartedAnewError(Exception):
    pass


@pytest.mark.parametrize(
    ("command_line", "argv", "starts_anew"),
    [
        *((loadgen.__main__.command_line, [name, "--help"], True) for name in loadgen.__main__._LONG),
        (loadgen.__main__.command_line, ["kv", "--help"], False),
        (mockserver.__main__.command_line, ["--help"], True),
        (mockserver.__main__.command_line, ["profiles", "--help"], False),
    ],
)
def test_what_takes_long_starts_anew_before_it_does_anything(
    command_line: Callable[[], object], argv: list[str], starts_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restart() -> None:
        raise _StartedAnewError

    monkeypatch.setattr(huge_pages, "restart", restart)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)  # of this process
    monkeypatch.setattr(sys, "argv", ["command", *argv])
    with pytest.raises(_StartedAnewError if starts_anew else SystemExit):
        command_line()


def test_every_command_that_runs_something_takes_long() -> None:
    commands = loadgen.commands
    assert set(loadgen.__main__._LONG) == {*commands._COMMANDS, commands.RESUME, commands.PROBE}
