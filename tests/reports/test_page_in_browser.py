"""The page in a real browser: it opens without an error, plays, scrubs, shows a task, and fits a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, sync_playwright  # after the check that it is there

from reports.compare import compare
from reports.html import write_page
from reports.load import load_run
from tests.reports.run_files import write_react_run, write_run

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    off = write_react_run(folder / "off", call_s=2.0, prefix_caching=False)
    on = write_react_run(folder / "on", call_s=1.0, num_cached_tokens=96, prefix_caching=True)
    write_page(compare([load_run(off), load_run(on)]), folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def page(browser: Browser, page_file: Path) -> Page:
    """One open page, for tests that leave it as they found it: paused at its start, in the light."""
    return OpenPage(browser, page_file).page


@pytest.fixture(autouse=True)
def rewind(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "page" in request.fixturenames:
        opened: Page = request.getfixturevalue("page")
        opened.evaluate("setPlaying(false); seek(0)")


class OpenPage:
    """A page and every complaint the browser made about it."""

    def __init__(
        self, browser: Browser, path: Path, *, width: int = 1440, theme: str = "light", expects: str = "stage"
    ) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
        )
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._note_request(request.url))
        self.page.goto(path.as_uri())
        if "stage" in expects:
            wait_until(self.page, "document.documentElement.dataset.ready === 'true'")

    def _note_request(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"asked the network for {url}")

    def scroll_through(self) -> None:
        """Bring every chart into view, so that all are drawn."""
        for chart in self.page.locator(".chart, #lanes-chart").all():
            chart.scroll_into_view_if_needed()
            chart.locator(".main-svg").first.wait_for()


def wait_until(page: Page, condition: str) -> None:
    """Ask again and again: the page's policy forbids the evaluation that ``wait_for_function`` does inside it."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{condition} did not come true within 10 s")


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_draws_everything_without_a_complaint(browser: Browser, page_file: Path, width: int, theme: str) -> None:
    opened = OpenPage(browser, page_file, width=width, theme=theme)

    opened.scroll_through()

    assert opened.complaints == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.evaluate("document.documentElement.dataset.theme") == theme


def test_page_opens_within_3_seconds(browser: Browser, page_file: Path) -> None:
    """The best of three: the machine may be busy with something else."""
    page = OpenPage(browser, page_file).page
    took_ms = []
    for _ in range(3):
        page.reload()
        took_ms.append(page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart"))

    assert min(took_ms) < 3000


def test_before_play_a_telling_moment_is_shown_and_play_starts_at_the_beginning(
    browser: Browser, page_file: Path
) -> None:
    page = OpenPage(browser, page_file).page
    assert page.evaluate("replay.at") == pytest.approx(0.3 * 4.0)

    page.select_option("#replay-speed", "0.1")
    page.click("#replay-play")

    assert page.evaluate("replay.at") < 1.0


def test_the_replay_says_whose_blocks_were_evicted_and_who_had_to_compute_again(page: Page) -> None:
    page.evaluate("seek(4)")
    off, on = page.locator(".side").all()

    assert off.locator(".evicted-when").inner_text() == "at 3.0 s:"
    assert off.locator(".evicted").inner_text() == "3 of a/react"
    assert off.locator(".losses-when").inner_text() == "None so far."
    assert on.locator('[data-value="evicted"]').inner_text() == "12"


def test_play_moves_the_clock_and_pause_stops_it(page: Page) -> None:
    page.select_option("#replay-speed", "1")

    page.click("#replay-play")
    wait_until(page, "replay.at > 0.2")
    page.click("#replay-play")
    stopped_at = page.evaluate("replay.at")
    page.wait_for_timeout(150)

    assert page.evaluate("replay.at") == stopped_at
    assert page.inner_text("#replay-play") == "Play"


def test_play_stops_at_the_end_and_starts_over(page: Page) -> None:
    page.select_option("#replay-speed", "1000")

    page.click("#replay-play")
    wait_until(page, "!replay.playing")
    assert page.evaluate("replay.at") == 6.0
    page.select_option("#replay-speed", "0.1")
    page.click("#replay-play")

    assert page.evaluate("replay.at") < 1.0


def test_scrubbing_shows_what_the_records_say(page: Page) -> None:
    """At 2.5 s without a cache, task a is in its tool (2 to 3), task b's first call decodes (2 to 3)."""
    page.evaluate("seek(2.5)")
    off = page.locator(".side").first

    assert page.inner_text("#replay-clock") == "2.5 s"
    assert off.locator('[data-value="done"]').inner_text() == "0 of 2"
    assert off.locator('[data-value="batch"]').inner_text() == "1 of 4"
    assert off.locator('[data-value="decode"]').inner_text() == "10"
    page.evaluate("seek(5.5)")
    assert off.locator('[data-value="done"]').inner_text() == "1 of 2"


def test_arrow_keys_scrub(page: Page) -> None:
    page.focus("#replay-at")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")

    assert 5.9 < page.evaluate("replay.at") < 6.0


def test_every_control_is_reached_by_the_tab_key(page: Page) -> None:
    reached = set()
    page.locator("nav a").first.focus()

    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))

    assert {"theme", "replay-play", "replay-speed", "replay-at", "lanes-run", "lanes-task"} <= reached


def test_picking_a_task_shows_its_lanes_and_why_it_took_so_long(page: Page) -> None:
    page.locator("#lanes").scroll_into_view_if_needed()
    page.locator("#lanes-chart .main-svg").first.wait_for()

    page.select_option("#lanes-run", label="react, cache off")
    page.select_option("#lanes-task", label="b (5.0 s)")

    why = page.inner_text("#lanes-why")
    assert why.startswith("It took 5.0 s, 1.0 times the median of its run. The chain that decided this has 2 calls:")
    assert "1.0 s in tools" in why
    names = page.evaluate("document.getElementById('lanes-chart').data.map((trace) => trace.name)")
    assert names == ["prefill", "decode", "tools", "critical path"]


def test_theme_button_turns_the_page_dark_and_back(page: Page) -> None:
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")

    assert page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("kind", ["svg", "png", "csv"])
def test_a_chart_is_saved_for_a_slide(page: Page, kind: str) -> None:
    page.locator('[data-chart="makespan"] .main-svg').first.wait_for()

    with page.expect_download() as download:
        page.locator(f'figure:has([data-chart="makespan"]) [data-save="{kind}"]').click()

    assert download.value.suggested_filename == f"makespan.{kind}"
    assert Path(download.value.path()).stat().st_size > 50


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="document.title=1">&lt;b&gt;</script><script>document.title=2</script>'
    run = write_run(tmp_path / "run", architecture=hostile, run_id=hostile)
    for name in ("calls", "tasks"):
        path = run / f"{name}.jsonl"
        path.write_text(path.read_text().replace('"t/react', '"<b>t</b>/react').replace('"t"', '"<b>t</b>"'))
    write_page(compare([load_run(run)]), tmp_path / "page.html")

    opened = OpenPage(browser, tmp_path / "page.html")
    opened.scroll_through()

    assert opened.complaints == []
    assert opened.page.title().startswith("<img src=x")
    assert opened.page.locator("#lanes-task option").first.inner_text() == "<b>t</b> (2.0 s)"
