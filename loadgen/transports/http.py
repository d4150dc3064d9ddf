"""Calls over HTTP: the timed path, so it does as little as it can.

One session for all calls, bodies joined from bytes that were serialised once, streams read as they come and parsed
only for what matters. Nothing here gives up on its own: a slow server is measured, not cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType

import aiohttp
import orjson

from loadgen.call import Call, Completion
from loadgen.context import Conversation
from loadgen.prompt_ids import PromptIds
from loadgen.target import Target, one_line, refusal
from loadgen.transports.eager import REQUEST_CLASS
from loadgen.transports.said import Said
from loadgen.transports.sse import StreamedAnswer
from mockserver.clock import Clock

KEEP_ALIVE_S = 4.0
"""Shorter than any server's (uvicorn's is 5 s): a connection is never used at the moment the server closes it."""
_BUSY = (429, 503)
_READ_BUFFER_BYTES = 1 << 20
_NUM_WARM_CONNECTIONS = 320
_CONNECT_TIMEOUT_S = 60.0
"""A host that does not answer at all is an error after this long; waiting for an answer has no limit."""


class HttpTransport:
    """Sends calls to an OpenAI-compatible server; use as ``async with``."""

    def __init__(self, target: Target, clock: Clock, prompt_ids: PromptIds | None = None) -> None:
        """With ``prompt_ids``, calls are plain completions of token ids."""
        self._clock = clock
        self._prompt_ids = prompt_ids
        self._url = f"{target.api_url}/{'chat/completions' if prompt_ids is None else 'completions'}"
        self._tokenize_url = f"{target.root_url}/tokenize"
        self._headers = {"content-type": "application/json", "accept": "text/event-stream", **target.headers}
        fixed = {
            "model": target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"return_token_ids": True} if prompt_ids is not None and target.keeps_answers else {}),
            **target.extra_body,
        }
        self._head = orjson.dumps(fixed)[:-1]
        self._scripted = target.scripted
        self._tells_answers = target.tells_answers
        self._exact = target.exact and not target.scripted
        self._keeps_answers = target.keeps_answers
        self._session: aiohttp.ClientSession | None = None
        self.clock_offset_s: float | None = None
        """The server's clock less ours, where the server shows its clock: makes its instants comparable."""

    async def __aenter__(self) -> HttpTransport:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=3600),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            read_bufsize=_READ_BUFFER_BYTES,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=REQUEST_CLASS,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` and read its stream to the end."""
        assert self._session is not None, "use the transport as `async with`"
        body, num_ids = self._body(call)
        clock = self._clock
        answer = StreamedAnswer(said=Said() if self._keeps_answers else None)
        status: int | None = None
        is_retryable = False
        retry_after: str | None = None
        sent_at = clock.now()
        try:
            async with self._session.post(self._url, data=body, headers=self._headers) as response:
                status = response.status
                if status != 200:
                    is_retryable = status in _BUSY
                    retry_after = response.headers.get("retry-after")
                    answer.error = refusal(status, await response.read())
                else:
                    # readany() returns what has arrived, so the instant is the socket's, not a line's or an event's.
                    read, now, feed = response.content.readany, clock.now, answer.feed
                    while data := await read():
                        feed(data, now())
                    # What follows an answer takes a while; the tokens that came meanwhile are read first.
                    await asyncio.sleep(0)  # noqa: TID251  (a turn of the event loop, no time)
                    answer.close()
        except (aiohttp.ClientError, OSError) as error:
            answer.error = one_line(error)
            # The server closed a kept connection as we took it: it never saw the request.
            is_retryable = status is None and isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError)
        ended_at = clock.now() if answer.error or answer.finished_at is None else answer.finished_at
        completion = self._completion(call, answer, num_ids, status=status, sent_at=sent_at, ended_at=ended_at)
        if not is_retryable:
            return completion
        return replace(completion, is_retryable=True, retry_after_s=_seconds(retry_after))

    async def warm_up(self, conversations: Iterable[Conversation]) -> None:
        """Let a mock server tokenise what the prompts will hold, and open a connection for each.

        On a real node that is the work of other cores; a mock would do it in simulated time, which stands still for
        nobody. Nothing reaches the engine or its cache.
        """
        assert self._session is not None, "use the transport as `async with`"
        session = self._session
        slots = asyncio.Semaphore(_NUM_WARM_CONNECTIONS)

        async def tokenize(conversation: Conversation) -> None:
            async with slots:
                body = b'{"messages":' + bytes(conversation.messages_json()) + b"]"
                if tools := conversation.tools_json():
                    body += b',"tools":' + tools
                with contextlib.suppress(aiohttp.ClientError, OSError):  # a server that cannot do this starts cold
                    async with session.post(self._tokenize_url, data=body + b"}", headers=self._headers) as response:
                        await response.read()

        async with asyncio.TaskGroup() as group:
            for conversation in conversations:
                group.create_task(tokenize(conversation))

    def _body(self, call: Call) -> tuple[bytes, int | None]:
        """What is sent, and how many token ids its prompt has; None where it is messages."""
        if self._prompt_ids is not None:
            return self._body_of_ids(call, self._prompt_ids)
        conversation = call.conversation
        parts: list[bytes | bytearray] = [self._head]
        if tools := conversation.tools_json():
            parts += (b',"tools":', tools)
        if self._scripted:
            parts += self._script(call)
        elif self._exact:
            # vLLM keeps the tools in the prompt, and a tool parser has nothing to wait for.
            parts.append(
                b',"max_completion_tokens":%d,"min_tokens":%d,"ignore_eos":true%b'
                % (call.num_output_tokens, call.num_output_tokens, b',"tool_choice":"none"' if tools else b"")
            )
        parts += (b',"messages":', conversation.messages_json(), b"]}")
        return b"".join(parts), None

    def _script(self, call: Call) -> tuple[bytes, ...]:
        """What a server of ours is told besides: which agent asks, and what the answer is, or how long."""
        agent = b',"session_id":', orjson.dumps(call.agent_id), b',"replayrig":{"first_at_once":true,'
        if self._tells_answers:
            return (*agent, b'"reply":', orjson.dumps(call.reply), b"}")
        return (*agent, b'"num_output_tokens":%d}' % call.num_output_tokens)

    def _body_of_ids(self, call: Call, prompt_ids: PromptIds) -> tuple[bytes, int]:
        ids, num_ids = prompt_ids.of(call.conversation)
        # Without a limit a plain completion would end after 16 tokens.
        parts = [self._head, b',"max_tokens":%d' % call.num_output_tokens]
        if self._scripted:
            parts += self._script(call)
        elif self._exact:
            parts.append(b',"min_tokens":%d,"ignore_eos":true' % call.num_output_tokens)
        parts += (b',"prompt":[', ids, b"]}")
        return b"".join(parts), num_ids

    def _completion(
        self,
        call: Call,
        answer: StreamedAnswer,
        num_ids: int | None,
        *,
        status: int | None,
        sent_at: float,
        ended_at: float,
    ) -> Completion:
        usage = answer.usage or {}
        details = usage.get("prompt_tokens_details") or {}
        extension = answer.extension or {}
        return Completion(
            sent_at=sent_at,
            ended_at=ended_at,
            first_token_at=answer.first_token_at,
            last_token_at=answer.last_token_at,
            num_prompt_tokens=usage.get("prompt_tokens"),
            expected_prompt_tokens=num_ids,
            answer=answer.said.message() if answer.said is not None and answer.error is None else None,
            num_cached_tokens=details.get("cached_tokens"),
            num_output_tokens=usage.get("completion_tokens"),
            expected_output_tokens=call.num_output_tokens if self._scripted or self._exact else None,
            finish_reason=answer.finish_reason,
            error=answer.error,
            status=status,
            scheduled_at=self._to_our_clock(extension.get("scheduled_at")),
            num_preemptions=extension.get("num_preemptions"),
            lag_s=self._lag_s(answer, extension),
            chunk_at=tuple(answer.chunk_at),
        )

    def _to_our_clock(self, at: float | None) -> float | None:
        return None if at is None or self.clock_offset_s is None else at - self.clock_offset_s

    def _lag_s(self, answer: StreamedAnswer, extension: Mapping[str, float]) -> float | None:
        """From the model's own last token to its arrival here: the server's lateness, the way, and our own."""
        due_at = extension.get("last_token_at")
        if due_at is None or answer.finished_at is None:
            return None
        if self.clock_offset_s is not None:
            return max(0.0, answer.finished_at + self.clock_offset_s - due_at)
        delivered_at = extension.get("delivered_at")
        return None if delivered_at is None else max(0.0, delivered_at - due_at)


def _seconds(retry_after: str | None) -> float | None:
    """The header's seconds; a date in it is not worth a calendar here."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
