"""Sends a list of probes to a live server, so that its cost can be fitted.

    loadgen probe --base-url http://127.0.0.1:8000 --max-model-len 32768 --out runs/probes
    reports calibrate --live runs/probes -o my-server.toml

The list is the one that ``reports probes`` prints, or a file like it.
Probes of a group go out together, or each after its own delay; a group goes out when the one before it has ended. The
run directory holds every token's arrival.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from loadgen.target import refusal
from loadgen.transports.eager import REQUEST_CLASS
from loadgen.transports.sse import StreamedAnswer
from mockserver.clock import Clock, WallClock, run_wall
from mockserver.filler import filler
from mockserver.settings import OneLineParser
from traces.jsonl import RunWriter
from traces.record import SERVER_COUNTS, CallRecord, RunHeader, ServerSample, TaskRecord

_BETWEEN_GROUPS_S = 0.05
"""The server is idle for so long between groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One line of the list."""

    group: int
    prompt: str
    num_prompt_tokens: int
    num_output_tokens: int
    delay_s: float = 0.0
    """Seconds from its group's start."""


_LEARNING = Probe(group=0, prompt="learning", num_prompt_tokens=200, num_output_tokens=2)


def read_probes(path: Path) -> list[Probe]:
    """The list, as ``reports probes`` prints it; ``ValueError`` names a line that is none."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            values = orjson.loads(line)
            probe = Probe(
                group=int(values["group"]),
                prompt=str(values["prompt"]),
                num_prompt_tokens=int(values["num_prompt_tokens"]),
                num_output_tokens=int(values["num_output_tokens"]),
                delay_s=float(values.get("delay_s", 0.0)),
            )
            if not 0.0 <= probe.delay_s < math.inf:
                raise ValueError("delay_s must not be negative")
            found.append(probe)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path}:{number}: not a probe") from None
    if not found:
        raise ValueError(f"{path}: holds no probe")
    return found


class Prober:
    """One server, and the calls sent to it."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, model: str, clock: Clock) -> None:
        self._session = session
        self._url = f"{base_url}/v1/chat/completions"
        self._model = model
        self._clock = clock
        self._words_per_token = 1.0

    async def learn(self) -> None:
        """Send one prompt and see how many tokens the server's own tokeniser makes of its words."""
        record = await self.send(_LEARNING, 0)
        if record.error is not None:
            raise ValueError(f"the first probe failed: {record.error}")
        if record.num_prompt_tokens:
            self._words_per_token = min(1.0, _LEARNING.num_prompt_tokens / record.num_prompt_tokens)

    async def send(self, probe: Probe, number: int, *, at: float = 0.0) -> CallRecord:
        """Send one probe, now or when it is ``at``, and read its stream to the end."""
        num_words = max(1, round(probe.num_prompt_tokens * self._words_per_token))
        body = orjson.dumps(
            {
                "model": self._model,
                "messages": [{"role": "user", "content": str(filler(probe.prompt, num_words))}],
                "max_tokens": probe.num_output_tokens,
                "min_tokens": probe.num_output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        )
        answer = StreamedAnswer()
        token_at: list[float] = []
        status = None
        if at:
            await self._clock.sleep_until(at)
        sent_at = self._clock.now()
        try:
            headers = {"content-type": "application/json"}
            async with self._session.post(self._url, data=body, headers=headers) as response:
                status = response.status
                if status != 200:
                    answer.error = refusal(status, await response.read())
                else:
                    while data := await response.content.readany():
                        at = self._clock.now()
                        answer.feed(data, at)
                        # Each chunk's usage says how many tokens there are so far: one may bring several, or none.
                        num_tokens = (answer.usage or {}).get("completion_tokens", len(answer.chunk_at))
                        token_at += [at] * (num_tokens - len(token_at))
                    answer.close()
        except (aiohttp.ClientError, OSError) as error:
            answer.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        usage = answer.usage or {}
        details = usage.get("prompt_tokens_details") or {}
        name = f"probe-{number}"
        return CallRecord(
            call_id=f"{name}/probe#0",
            task_id=name,
            agent_id=f"{name}/probe",
            index=0,
            due_at=sent_at,
            sent_at=sent_at,
            first_token_at=token_at[0] if token_at else None,
            last_token_at=token_at[-1] if token_at else None,
            num_prompt_tokens=usage.get("prompt_tokens"),
            num_cached_tokens=details.get("cached_tokens"),
            num_output_tokens=usage.get("completion_tokens"),
            expected_output_tokens=probe.num_output_tokens,
            finish_reason=answer.finish_reason,
            error=answer.error,
            status=status,
            chunk_at=tuple(token_at),
        )


def new_session() -> aiohttp.ClientSession:
    """For probes: nothing is given up on but a host that does not answer, and a request leaves when it is made."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        connector=aiohttp.TCPConnector(limit=0),
        request_class=REQUEST_CLASS,
    )


async def probe_server(probes: Sequence[Probe], *, base_url: str, model: str | None, out: Path) -> int:
    """Send all probes and write the run directory; returns how many failed."""
    base_url = base_url.rstrip("/").removesuffix("/v1")
    clock = WallClock()
    async with new_session() as session:
        server = await _ask(session, base_url)
        prober = Prober(session, base_url, model or server.model, clock)
        await prober.learn()
        header = _header(len(probes), base_url, server)
        clock.start()
        num_failed = 0
        with RunWriter(out, header) as writer:
            writer.sample(server.sample)
            number = 0
            for _, group in itertools.groupby(probes, key=lambda probe: probe.group):
                together = list(group)
                began_at = clock.now()
                records = await asyncio.gather(
                    *(prober.send(one, number + k, at=began_at + one.delay_s) for k, one in enumerate(together))
                )
                number += len(together)
                for record in records:
                    writer.call(record)
                    writer.task(_task(record, ended_at=clock.now()))
                    num_failed += record.error is not None
                await clock.sleep_until(clock.now() + _BETWEEN_GROUPS_S)
            writer.finish(_header(len(probes), base_url, server, is_complete=True), {})
    return num_failed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """What a server says of itself."""

    model: str
    block_size: int | None
    sample: ServerSample


async def _ask(session: aiohttp.ClientSession, base_url: str) -> _Server:
    async with session.get(f"{base_url}/v1/models") as response:
        models = orjson.loads(await response.read())["data"]
    async with session.get(f"{base_url}/metrics") as response:
        text = await response.text() if response.status == 200 else ""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', next(iter(re.findall(r"vllm:cache_config_info\{(.*?)\}", text)), "")))
    known = {name: int(value) for name, value in labels.items() if value.isdecimal()}
    counters = dict.fromkeys(SERVER_COUNTS, 0)
    sample: dict[str, Any] = counters | {"num_blocks": known.get("num_gpu_blocks", 0)}
    return _Server(model=models[0]["id"], block_size=known.get("block_size"), sample=ServerSample(at=0.0, **sample))


def _header(num_probes: int, base_url: str, server: _Server, *, is_complete: bool = False) -> RunHeader:
    try:
        own_version = version("replayrig")
    except PackageNotFoundError:
        own_version = "unknown"
    return RunHeader(
        run_id="probes",
        architecture="probe",
        workload="probes",
        workload_digest="",
        num_tasks=num_probes,
        target=base_url,
        clock="wall",
        time_scale=1.0,
        profile=None,
        prefix_caching=None,
        max_num_seqs=None,
        block_size=server.block_size,
        seed=0,
        settings={"model": server.model},
        version=own_version,
        started_on=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=is_complete,
    )


def _task(record: CallRecord, *, ended_at: float) -> TaskRecord:
    return TaskRecord(
        task_id=record.task_id,
        started_at=record.due_at,
        ended_at=record.last_token_at or ended_at,
        num_calls=1,
        num_tool_calls=0,
        num_subagents=0,
        error=record.error,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Send a list of probes; exit code 1 where some failed, 2 for wrong input."""
    parser = OneLineParser(
        prog="loadgen probe",
        description="Send requests from which `reports calibrate` tells a live server's costs apart.",
    )
    parser.add_argument(
        "probes", nargs="?", type=Path, metavar="FILE", help="a list as `reports probes` prints it (default: its whole)"
    )
    parser.add_argument("--base-url", required=True, metavar="URL", help="the server")
    parser.add_argument("--max-model-len", type=int, default=32_768, metavar="N", help="the server's setting")
    parser.add_argument("--max-num-seqs", type=int, default=256, metavar="N", help="the server's setting")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="how often each probe is sent")
    parser.add_argument("--model", metavar="NAME", help="default: the first that the server names")
    parser.add_argument("--out", type=Path, default=Path("runs/probes"), metavar="DIR", help="the run directory")
    options = parser.parse_args(argv)
    try:
        probes = _whole_list(options) if options.probes is None else read_probes(options.probes)
        num_failed = run_wall(
            lambda: probe_server(probes, base_url=options.base_url, model=options.model, out=options.out)
        )
    except (ValueError, OSError, aiohttp.ClientError, KeyError, IndexError) as error:
        sys.stderr.write(f"loadgen: {' '.join(str(error).split()) or type(error).__name__}\n")
        return 2
    sys.stdout.write(f"results: {options.out} ({len(probes)} probes, {num_failed} failed)\n")
    return 1 if num_failed else 0


def _whole_list(options: argparse.Namespace) -> list[Probe]:
    from reports.probes import probes  # noqa: PLC0415  # of the command, not of the library

    listed = probes(max_model_len=options.max_model_len, max_num_seqs=options.max_num_seqs, repeats=options.repeats)
    return [
        Probe(
            group=one.group,
            prompt=one.prompt,
            num_prompt_tokens=one.num_prompt_tokens,
            num_output_tokens=one.num_output_tokens,
            delay_s=one.delay_s,
        )
        for one in listed
    ]


if __name__ == "__main__":
    sys.exit(main())
