"""How many tokens a server says that messages have, on a real socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web

from loadgen.context import user_message
from loadgen.server_view import ServerView, new_session
from loadgen.target import Target
from loadgen.token_counts import CountError, TokenCounts
from mockserver.tokens import TokenText
from tests.loadgen.sse_server import serving

HELLO = [user_message("hello")]
TOOL = TokenText('{"type":"function"}', b"")
"""As the built-in workload has them: a text that knows its tokens."""
Answer = Callable[[int], web.StreamResponse]
"""What the n-th request is answered."""


class Server:
    def __init__(self, tokenize: Answer, chat: Answer) -> None:
        self.tokenize, self.chat = tokenize, chat
        self.bodies: list[dict[str, object]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(orjson.loads(await request.read()))
        return (self.tokenize if request.path == "/tokenize" else self.chat)(len(self.bodies))


def counts(number: int) -> Answer:
    return lambda _: web.json_response({"count": number, "usage": {"prompt_tokens": number}})


def missing(_: int) -> web.StreamResponse:
    return web.Response(status=404)


async def asked(server: Server, *, exact: bool = True) -> tuple[str | None, int | None]:
    routes: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        ("POST", path): server.answer for path in ("/tokenize", "/v1/chat/completions")
    }
    async with serving(routes) as url, new_session() as session:
        target = Target(base_url=url, model="m", exact=exact)
        found = await TokenCounts(server=ServerView(target=target, session=session), target=target).find_way()
        return (None, None) if found is None else (found[0], await found[1](HELLO, [TOOL]))


async def test_tokenize_is_asked_first() -> None:
    server = Server(counts(7), counts(8))

    assert await asked(server) == ("/tokenize", 7)
    assert server.bodies[-1] == {"model": "m", "messages": HELLO, "tools": [{"type": "function"}]}


async def test_else_a_call_of_one_token_says_it_in_a_cache_of_its_own() -> None:
    server = Server(missing, counts(8))

    assert await asked(server) == ("measured usage", 8)
    body = server.bodies[-1]
    assert (body["max_tokens"], body["tool_choice"]) == (1, "none")
    assert body["cache_salt"]


async def test_a_server_that_knows_no_extra_fields_gets_none() -> None:
    server = Server(missing, counts(8))

    await asked(server, exact=False)

    assert "cache_salt" not in server.bodies[-1]


@pytest.mark.parametrize("chat", [missing, lambda _: web.json_response({}), lambda _: web.Response(text="<html>")])
async def test_a_server_that_tells_neither_way_has_no_way(chat: Answer) -> None:
    assert await asked(Server(missing, chat)) == (None, None)


async def test_a_count_that_fails_once_is_asked_for_again() -> None:
    def sometimes(number: int) -> web.StreamResponse:
        return counts(7)(number) if number != 2 else web.Response(status=500)

    assert await asked(Server(sometimes, missing)) == ("/tokenize", 7)


async def test_a_count_that_is_refused_every_time_is_an_error() -> None:
    def once(number: int) -> web.StreamResponse:
        return counts(7)(number) if number == 1 else web.Response(status=400)

    with pytest.raises(CountError, match="does not count"):
        await asked(Server(once, missing))
