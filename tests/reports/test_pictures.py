"""Charts as files: drawn by the browser that is there, and refused in one line where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reports.__main__ import main
from reports.figures import FIGURES
from reports.pictures import BROWSERS
from tests.reports.run_files import write_react_run

needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium or Chrome is installed"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "<b>run</b>"
    return str(write_react_run(folder, call_s=1.0, num_cached_tokens=96, architecture="<b>&amp;</b>"))


class TestWithABrowser:
    pytestmark = needs_browser

    def test_every_chart_of_the_page_becomes_a_picture(self, run: str, tmp_path: Path) -> None:
        status = main(["export", run, "--to", "svg", "-o", str(tmp_path / "charts")])

        assert status == 0
        assert {path.stem for path in (tmp_path / "charts").iterdir()} == set(FIGURES)
        assert all(path.read_text().startswith("<svg") for path in (tmp_path / "charts").iterdir())

    def test_names_are_drawn_as_they_are(self, run: str, tmp_path: Path) -> None:
        main(["export", run, "--figure", "makespan", "-o", str(tmp_path / "makespan.svg")])

        texts = list(ElementTree.parse(tmp_path / "makespan.svg").getroot().itertext())
        assert "<b>&amp;</b>" in texts
        assert "Makespan" in texts

    def test_a_png_is_one(self, run: str, tmp_path: Path) -> None:
        main(["export", run, "--figure", "ttft", "--to", "png", "-o", str(tmp_path / "picture")])

        assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--figure", "makespan", "--to", "svg", "--browser", "/no/such/browser"], "/no/such/browser: no program"),
        (["--to", "svg"], "writes one chart with --figure NAME, or all of them into a folder"),
        (["--figure", "none", "--to", "svg"], "no figure 'none'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    arguments: list[str], says: str, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["export", run, *arguments])

    assert status == 2
    assert says in capsys.readouterr().err


def test_a_browser_that_draws_nothing_is_one_line(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["export", run, "--figure", "makespan", "--to", "svg", "--browser", str(shutil.which("true"))])

    assert status == 2
    assert "drew 0 of 1 charts" in capsys.readouterr().err
