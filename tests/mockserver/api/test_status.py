"""The status page: its data, and the page itself in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mockserver.api.conftest import Client, connected

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


async def test_status_tells_of_the_machine_and_its_last_requests(client: Client) -> None:
    await client.chat(max_tokens=7)
    _, text = await client.get("/replayrig/status")

    status = json.loads(text)
    assert status["engine"]["num_finished_requests"] == 1
    assert status["recent"][0]["num_output_tokens"] == 7
    assert status["recent"][0]["finish_reason"] == "length"
    assert 0.0 <= status["recent"][0]["queue_s"] < status["recent"][0]["ttft_s"] < status["recent"][0]["e2e_s"]


async def test_root_is_a_page_for_browsers_only(client: Client) -> None:
    status, text = await client.get("/", Accept="text/html,application/xhtml+xml")

    assert status == 200
    assert text.startswith("<!doctype html>")
    assert await client.get("/", Accept="*/*") == (404, '{"detail":"Not Found"}')


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_shows_live_numbers_in_a_browser(tmp_path: Path) -> None:
    async with connected(served_model_name=("model-on-the-page",)) as client:
        for _ in range(3):
            await client.chat(max_tokens=5)
        import asyncio

        process = await asyncio.create_subprocess_exec(
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
            *("--virtual-time-budget=4000", "--dump-dom", f"{client.server.base_url}/"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        dom = (await asyncio.wait_for(process.communicate(), 60.0))[0].decode()

    assert '<h1 id="model">model-on-the-page</h1>' in dom
    assert "3 requests finished" in dom
    assert dom.count("<td>length</td>") == 3
    assert 'd="M' in dom
