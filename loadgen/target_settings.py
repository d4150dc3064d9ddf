"""Settings of what is asked: which server, at what time, how it is addressed, and how its answers are to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from loadgen.agent_settings import AgentSettings
from mockserver.settings import setting as _setting

IN_PROCESS = "in-process"
OWN_MOCK = "http"
AUTO = "auto"
SECRETS = frozenset({"api_key", "header"})
"""Settings that are never written anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings(AgentSettings):
    """What calls are sent to."""

    target: str = _setting(
        IN_PROCESS,
        "in-process (an engine in this process), http (a mock server started for the run), or a server's URL",
        flags=("--base-url",),
    )
    clock: Literal["virtual", "wall"] | None = _setting(
        None, "virtual: wait for nothing (in process only); wall: real time. Default: virtual in process, else wall"
    )
    time_scale: str = _setting(AUTO, "simulated seconds per real second, or auto: what this machine carries")
    # -- how a server is addressed ---------------------------------------------------------------------------------
    model: str | None = _setting(None, "the model's name; default: what /v1/models says first")
    api_key: str | None = _setting(None, "key sent as a bearer token; default: OPENAI_API_KEY. Never written anywhere")
    header: tuple[str, ...] = _setting((), "further headers, NAME=VALUE; never written anywhere")
    extra_body: str = _setting("{}", "JSON object that every request's body has besides")
    endpoint: Literal["chat", "completions"] = _setting(
        "chat", "chat: messages, of which the server makes a prompt; completions: token ids, as many as the trace has"
    )
    client: Literal["http", "openai"] = _setting(
        "http", "http: the timed path; openai: through the openai SDK, to see what an agent on it would see"
    )
    # -- before the run --------------------------------------------------------------------------------------------
    ready_check_timeout_sec: float = _setting(0.0, "real seconds to wait until the server is there; 0: ask once")
    reset_prefix_cache: bool = _setting(False, "empty the server's prefix cache first (POST /reset_prefix_cache)")
    cache_bust: bool = _setting(False, "give the run a cache_salt of its own, so that it hits nothing from before")
    # -- how answers are to be -------------------------------------------------------------------------------------
    exact_lengths: bool = _setting(
        True, "make a server that is not ours answer as long as the recording did: min_tokens and ignore_eos"
    )
    recorded_answers: bool = _setting(
        True,
        "have a mock of ours, and the engine in process, answer with the recorded message; off: with a text of its own"
        " that is as long, as any other server does",
    )
    fit_prompts: bool = _setting(
        True, "make texts longer or shorter, so that a server that is not ours counts the trace's prompt tokens (chat)"
    )
    stream_interval: int | None = _setting(
        None, "ask for so many tokens in one chunk (the first comes at once); vLLM's stream_interval"
    )
    max_retries: int = _setting(3, "how often a call is sent again after 429, 503 or a connection that went stale")

    def __post_init__(self) -> None:
        AgentSettings.__post_init__(self)
        if not self.is_in_process and self.target != OWN_MOCK and not self.target.startswith(("http://", "https://")):
            raise ValueError(f"target must be in-process, http or a URL that starts with http, got {self.target!r}")
        if self.clock == "virtual" and not self.is_in_process:
            raise ValueError(f"virtual time is for target in-process only, got target {self.target!r}")
        if self.is_virtual and self.state_needs_sockets:
            raise ValueError("a state in Redis or PostgreSQL needs real time: --clock wall or --target http")
        if self.time_scale != AUTO:
            _positive_number(self.time_scale)
        if self.stream_interval is not None and self.stream_interval < 1:
            raise ValueError(f"stream_interval must be at least 1, got {self.stream_interval}")
        if self.max_retries < 0:
            raise ValueError(f"max_retries must be at least 0, got {self.max_retries}")
        if self.ready_check_timeout_sec < 0:
            raise ValueError(f"ready_check_timeout_sec must be at least 0, got {self.ready_check_timeout_sec}")
        if self.client == "openai" and self.is_in_process:
            raise ValueError("client openai needs a server: --target http or a URL")
        if self.client == "openai" and self.endpoint != "chat":
            raise ValueError("client openai is for endpoint chat: leave out --client or --endpoint")
        self.headers()
        self.more_body()

    @property
    def is_in_process(self) -> bool:
        """Whether the engine is in this process."""
        return self.target == IN_PROCESS

    @property
    def is_own_machine(self) -> bool:
        """Whether the machine is what these settings say: in this process, or a mock started for the run."""
        return self.is_in_process or self.target == OWN_MOCK

    @property
    def is_virtual(self) -> bool:
        """Whether the run waits for nothing."""
        return self.is_in_process and self.clock != "wall"

    @property
    def fixed_time_scale(self) -> float | None:
        """Simulated seconds per real second, where it is given."""
        return None if self.time_scale == AUTO else float(self.time_scale)

    def headers(self) -> Mapping[str, str]:
        """What every request's headers have besides."""
        headers: dict[str, str] = {}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        for text in self.header:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise ValueError("header must be NAME=VALUE")  # the value may be a secret: it is not repeated
            headers[name.strip()] = value.strip()
        return headers

    def more_body(self) -> dict[str, Any]:
        """What every request's body has besides."""
        try:
            body = orjson.loads(self.extra_body)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"extra_body must be a JSON object: {error}") from None
        if not isinstance(body, dict):
            raise ValueError(  # noqa: TRY004  (what a setting says is wrong, not its type)
                f"extra_body must be a JSON object, got {self.extra_body!r}"
            )
        if self.stream_interval is not None:
            body["stream_interval"] = self.stream_interval
        return body


def _positive_number(text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"time_scale must be a number or auto, got {text!r}") from None
    if not 0.0 < value < float("inf"):
        raise ValueError(f"time_scale must be more than 0, got {text}")
