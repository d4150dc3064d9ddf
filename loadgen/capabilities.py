"""What a server that is not ours can do: found out with one small call, not assumed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loadgen.call import Call, Completion
from loadgen.context import Conversation, user_message
from loadgen.prompt_ids import PromptIds
from loadgen.target import Target, TargetError
from loadgen.transports.http import HttpTransport
from mockserver.clock import Clock

_PROBE_TOKENS = 3
_NOT_UNDERSTOOD = (400, 422)
_LENGTHS = {
    True: "answers as long as asked for",
    False: "min_tokens and ignore_eos are not understood: answers end when they end",
    None: "answers end when they end",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one server was seen to do."""

    usage_in_streams: bool
    cached_tokens: bool
    exact_lengths: bool | None
    """None: they were not asked for."""

    def in_words(self) -> str:
        """For the run's header."""
        return "; ".join(
            (
                "usage in streams" if self.usage_in_streams else "no usage in streams: token counts are unknown",
                "cached tokens in usage"
                if self.cached_tokens
                else "no cached tokens in usage (vLLM: --enable-prompt-tokens-details): hit rates are unknown",
                _LENGTHS[self.exact_lengths],
            )
        )


async def find_out(target: Target, clock: Clock, prompt_ids: PromptIds | None = None) -> tuple[Target, Capabilities]:
    """``target`` as it can be used, and what it can do. Raises TargetError where not even a plain call is answered."""
    answer = await _ask(target, clock, prompt_ids)
    wants_exact = target.exact
    if wants_exact and answer.status in _NOT_UNDERSTOOD:
        target = replace(target, exact=False)
        answer = await _ask(target, clock, prompt_ids)
    if answer.error is not None:
        raise TargetError(f"{target.base_url}: a first small call failed: {answer.error}")
    return target, Capabilities(
        usage_in_streams=answer.num_output_tokens is not None,
        cached_tokens=answer.num_cached_tokens is not None,
        exact_lengths=(target.exact and answer.num_output_tokens in (None, _PROBE_TOKENS)) if wants_exact else None,
    )


async def _ask(target: Target, clock: Clock, prompt_ids: PromptIds | None) -> Completion:
    call = Call(
        call_id="probe",
        task_id="probe",
        agent_id="probe",
        conversation=Conversation(messages=[user_message("Say hello.")]),
        reply={"role": "assistant", "content": "hello"},
        num_output_tokens=_PROBE_TOKENS,
    )
    async with HttpTransport(target, clock, prompt_ids) as transport:
        return await transport.complete(call)
