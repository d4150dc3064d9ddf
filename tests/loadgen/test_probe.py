"""Probes sent to a server: what is asked, in which order, and what is written down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from loadgen.commands import main as command_line
from loadgen.probe import main, probe_server, read_probes
from reports.probes import probes
from traces.jsonl import read_run

LINES = [
    {"group": 0, "prompt": "a", "num_prompt_tokens": 5, "num_output_tokens": 1},
    {"group": 1, "prompt": "b", "num_prompt_tokens": 3, "num_output_tokens": 3},
    {"group": 1, "prompt": "c", "num_prompt_tokens": 4, "num_output_tokens": 2},
]
METRICS = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="77",other="x"} 1.0\n'


class SmallServer:
    """Answers with as many tokens as asked for, and remembers what it was asked and how many at once."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.num_running = 0
        self.most_running = 0

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "small"}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for place in range(body["max_tokens"]):
            await asyncio.sleep(0.01)
            reason = "length" if place + 1 == body["max_tokens"] else None
            event = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": reason}]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        usage = {"prompt_tokens": len(body["messages"][0]["content"].split()), "completion_tokens": body["max_tokens"]}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")
        self.num_running -= 1
        return response


@pytest.mark.wall_clock
async def test_a_group_goes_out_together_and_every_token_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    server = SmallServer()
    runner, url = await server.start()

    num_failed = await probe_server(read_probes(path), base_url=f"{url}/v1", model=None, out=tmp_path / "run")
    await runner.cleanup()

    run = read_run(tmp_path / "run")
    calls = sorted(run.calls, key=lambda call: call.call_id)
    assert num_failed == 0
    assert run.header.complete
    assert (run.header.block_size, run.samples[0].num_blocks) == (32, 77)
    assert [call.num_output_tokens for call in calls] == [1, 3, 2]
    assert [len(call.chunk_at) for call in calls] == [1, 3, 2]
    assert [call.num_prompt_tokens for call in calls] == [5, 3, 4]
    assert calls[1].sent_at >= (calls[0].last_token_at or 0)
    assert abs(calls[1].sent_at - calls[2].sent_at) < 0.01
    assert all(body["ignore_eos"] and body["min_tokens"] == body["max_tokens"] for body in server.asked)
    assert len(server.asked) == 4  # one to learn how many tokens a word is


@pytest.mark.wall_clock
async def test_without_a_file_the_command_sends_the_whole_list(tmp_path: Path) -> None:
    server = SmallServer()
    runner, url = await server.start()
    sizes = {"max_model_len": 256, "max_num_seqs": 2, "repeats": 1}
    flags = [text for name, value in sizes.items() for text in (f"--{name.replace('_', '-')}", str(value))]

    status = await asyncio.to_thread(command_line, ["probe", "--base-url", url, *flags, "--out", str(tmp_path / "run")])
    await runner.cleanup()

    assert status == 0
    assert len(read_run(tmp_path / "run").calls) == len(probes(**sizes))


@pytest.mark.wall_clock
async def test_a_probe_with_a_delay_comes_while_the_others_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    long = {"group": 0, "prompt": "long", "num_prompt_tokens": 3, "num_output_tokens": 40}
    late = {"group": 0, "prompt": "late", "num_prompt_tokens": 3, "num_output_tokens": 1, "delay_s": 0.1}
    path.write_text(json.dumps(late) + "\n" + json.dumps(long) + "\n")
    server = SmallServer()
    runner, url = await server.start()

    await probe_server(read_probes(path), base_url=f"{url}/v1", model=None, out=tmp_path / "run")
    await runner.cleanup()

    late_call, long_call = sorted(read_run(tmp_path / "run").calls, key=lambda call: call.call_id)
    assert late_call.sent_at - long_call.sent_at == pytest.approx(0.1, abs=0.05)
    assert late_call.sent_at < (long_call.last_token_at or 0)


_LATE = '{"group": 0, "prompt": "x", "num_prompt_tokens": 3, "num_output_tokens": 4, "delay_s": %s}\n'


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "not json\n", _LATE % -1, _LATE % '"soon"', _LATE % "1e999"])
def test_a_list_that_is_none_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text(text)

    status = main([str(path), "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "run")])

    error = capsys.readouterr().err
    assert status == 2
    assert "probes.jsonl" in error
    assert error.count("\n") == 1


def test_no_server_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text(json.dumps(LINES[0]) + "\n")

    status = main([str(path), "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "run")])

    assert status == 2
    assert capsys.readouterr().err.count("\n") == 1
