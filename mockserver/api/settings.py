"""Every setting of the server, defined once: its name, its default, its check and what it means.

Flags, ``MOCKSERVER_...`` variables and a TOML file all fill this one class; ``sources.py`` reads them.
Names that vLLM has are vLLM's, and mean what they mean there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mockserver.api.faults import KINDS, parsed_fault
from mockserver.node_settings import NodeSettings
from mockserver.profile_files import find_profile
from mockserver.settings import setting as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(NodeSettings):
    """What one server is told; ``None`` leaves an engine setting to the profile."""

    # -- where it listens ----------------------------------------------------------------------------------------
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8000, "port to listen on; 0 takes a free one, which the ready line names")
    api_key: tuple[str, ...] = _setting((), "key that clients must send; may be given several times")
    # -- the machine it pretends to be ---------------------------------------------------------------------------
    time_scale: float = _setting(1.0, "simulated seconds per real second")
    # -- what it says --------------------------------------------------------------------------------------------
    served_model_name: tuple[str, ...] = _setting((), "name of the model; may be given several times")
    tool_call_probability: float = _setting(
        0.5, "how often an unscripted reply to a request with tools (tool_choice auto) calls some"
    )
    enable_auto_tool_choice: bool = _setting(True, "let the model decide whether it calls a tool")
    tool_call_parser: str | None = _setting("hermes", "how tool calls are written in the model's text")
    reasoning_parser: str | None = _setting(None, "make replies think first, as a reasoning model's do")
    # -- how it says it ------------------------------------------------------------------------------------------
    enable_prompt_tokens_details: bool = _setting(False, "report cached prompt tokens in usage")
    enable_force_include_usage: bool = _setting(False, "report usage in every streamed chunk, asked or not")
    enable_request_id_headers: bool = _setting(False, "answer with X-Request-Id")
    enable_server_load_tracking: bool = _setting(False, "count requests in flight for /load")
    enable_scale_out: bool = _setting(False, "serve /inference/v1/generate and the render endpoints")
    sse_keep_alive_interval: int = _setting(0, "seconds between comments in a silent stream; 0: none")
    stream_interval: int = _setting(1, "tokens in one streamed chunk, at least")
    dev_mode: bool = _setting(True, "serve /reset_prefix_cache, /server_info and the like")
    fault: tuple[str, ...] = _setting(
        (), f"KIND=SHARE or KIND=SHARE:SECONDS, what goes wrong for a share of the requests: {', '.join(KINDS)}"
    )
    # -- limits --------------------------------------------------------------------------------------------------
    max_num_queued_reqs: int | None = _setting(None, "requests in the server before it answers 503")
    max_body_mb: float = _setting(64.0, "megabytes one request body may have")
    header_timeout: float = _setting(30.0, "real seconds a client may take to send a request's headers and body")
    keep_alive_timeout: float = _setting(75.0, "real seconds an idle connection is kept")
    stop_with_stdin: bool = _setting(
        False, "stop when standard input ends, as it does when the process that started the server is gone"
    )
    grace_period: float = _setting(5.0, "real seconds that running requests get to finish after SIGTERM")
    # -- logs ----------------------------------------------------------------------------------------------------
    log_format: Literal["text", "json"] = _setting("text", "how log lines are written")
    log_level: Literal["debug", "info", "warning", "error"] = _setting("warning", "what is logged")
    access_log: bool = _setting(False, "log one line a request (never prompts, never keys)")

    def __post_init__(self) -> None:
        NodeSettings.__post_init__(self)
        at_least = {
            "port": 0,
            "sse_keep_alive_interval": 0,
            "stream_interval": 1,
            "max_num_queued_reqs": 0,
            "grace_period": 0,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.port > 65_535:
            raise ValueError(f"port must be at most 65535, got {self.port}")
        for name in ("time_scale", "max_body_mb", "header_timeout", "keep_alive_timeout"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {value}")
        if not 0.0 <= self.tool_call_probability <= 1.0:
            raise ValueError(f"tool_call_probability must be in [0, 1], got {self.tool_call_probability}")
        for text in self.fault:
            parsed_fault(text)
        if any(not name for name in (*self.served_model_name, *self.api_key)):
            raise ValueError("served_model_name and api_key must not be empty")

    def model_names(self) -> tuple[str, ...]:
        """The names this server answers to; the first one is what responses carry."""
        return self.served_model_name or (find_profile(self.profile).model,)
