"""Calls whose prompts are made to the server's own tokenizer on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loadgen.call import Call, Completion, Transport
from loadgen.fitted_prompts import FittedPrompts


@dataclass(eq=False, slots=True)
class FittedTransport:
    """Sends the twin of each prompt. What is not fitted yet is fitted now, which counts as dispatch delay."""

    inner: Transport
    prompts: FittedPrompts

    async def complete(self, call: Call) -> Completion:
        """Send ``call``, its prompt as long for the server as the trace's is for us."""
        conversation, num_tokens = await self.prompts.twin(call.conversation)
        completion = await self.inner.complete(replace(call, conversation=conversation))
        if self.prompts.answers_are_live:
            return completion
        return replace(completion, expected_prompt_tokens=num_tokens)
