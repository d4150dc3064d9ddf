"""The requests that tell a server's cost apart, so that ``reports calibrate`` can determine all of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One request. The time of a group's probes begins when the group before has ended."""

    group: int
    tells: str
    """The coefficient it is there for."""
    prompt: str
    """Probes with the same name have the same prompt, so that the later one is served from the cache."""
    num_prompt_tokens: int
    num_output_tokens: int
    delay_s: float = 0.0
    """When it is sent, in seconds of its group's time: at once, or while others of the group are being answered."""


def probes(*, max_model_len: int, max_num_seqs: int, repeats: int = 3) -> list[Probe]:
    """The whole list: about 30 groups for each repeat."""
    if max_model_len < 256:
        raise ValueError(f"max_model_len must be at least 256, got {max_model_len}")
    found: list[Probe] = []
    group = 0
    for repeat in range(repeats):
        for requests in _groups(max_model_len, max_num_seqs, repeat):
            found += [
                Probe(
                    group=group,
                    tells=tells,
                    prompt=prompt,
                    num_prompt_tokens=num_prompt,
                    num_output_tokens=num_output,
                    delay_s=delay_s,
                )
                for tells, prompt, num_prompt, num_output, delay_s in requests
            ]
            group += 1
    return found


def probe_lines(found: Iterable[Probe]) -> str:
    """The list as JSON lines, one request each."""
    return "".join(json.dumps(asdict(probe)) + "\n" for probe in found)


_Request = tuple[str, str, int, int, float]
_MEANWHILE_S = 0.1
"""From one that comes while others are being answered to the next."""
_MIXTURE = 24
_MIXTURE_S = 0.06
"""Likewise in a mixture of so many."""


def _groups(max_model_len: int, max_num_seqs: int, repeat: int) -> Iterator[list[_Request]]:
    longest = max_model_len - 64
    lengths = [length for length in (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536) if length <= longest]
    for length in lengths:
        name = f"cold {length} {repeat}"
        tells = "per_prefill_token_s" if length <= 4096 else "per_prefill_attention_s"
        yield [(tells, name, length, 1, 0.0)]
        yield [("frontend_per_prompt_token_s", name, length, 1, 0.0)]  # the same prompt again, from the cache
    for length in (lengths[0], lengths[-1]):
        yield [("per_decode_context_token_s", f"decode {length} {repeat}", length, 48, 0.0)]
    half = lengths[-1] // 2
    together = range(min(4, max_num_seqs))  # much context in one step
    yield [("per_decode_context_token_s", f"contexts {repeat} {place}", half, 96, 0.0) for place in together]
    yield [("floor_s", f"floor {repeat}", 64, 48, 0.0)]
    size = 2
    while size <= min(max_num_seqs, 64):
        yield [("per_decode_seq_s", f"group {size} {repeat} {place}", 64, 48, 0.0) for place in range(size)]
        size *= 2
    yield list(_mixture(lengths, longest, repeat))
    for num_decoding in (1, 4):
        if num_decoding < max_num_seqs:
            name = f"meanwhile {num_decoding} {repeat}"
            new = [(f"{name} new {number}", 64 << number) for number in range(4)]
            known = [(f"contexts {repeat} {number % len(together)}", 64 << number) for number in range(4)]
            yield _meanwhile(name, num_decoding, [(prompt, min(num, longest)) for prompt, num in new], "mixed_step_s")
            yield _meanwhile(
                f"{name} again",
                num_decoding,
                [(prompt, min(half + num, longest)) for prompt, num in known],
                "per_prefill_context_token_s",
            )


def _mixture(lengths: Sequence[int], longest: int, repeat: int) -> Iterator[_Request]:
    """Short answers that overlap, as those of agents do, to prompts that are new and to prompts that have grown."""
    known_lengths = (0, *lengths[:4])
    for number in range(_MIXTURE):
        num_new = 64 << number % 4
        known = known_lengths[number % len(known_lengths)]
        prompt = f"cold {known} {repeat}" if known else f"mixture {repeat} {number}"
        yield "mixed_step_s", prompt, min(known + num_new, longest), 24, number * _MIXTURE_S


def _meanwhile(name: str, num_decoding: int, prompts: Sequence[tuple[str, int]], tells: str) -> list[_Request]:
    """Prompts that come one after the other while ``num_decoding`` others get long answers."""
    decoding = [(tells, f"{name} {place}", 64, 160, 0.0) for place in range(num_decoding)]
    coming = [
        (tells, prompt, num_tokens, 1, number * _MEANWHILE_S)
        for number, (prompt, num_tokens) in enumerate(prompts, start=1)
    ]
    return [*decoding, *coming]
