"""From a live server's records to a profile that the mock server runs: ``reports calibrate``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mockserver.engine.cost import FIRST_PREFILL_TOKENS, FittedCost, padded_batch_size
from mockserver.engine.front_end import FrontEnd
from mockserver.engine.profiles import Profile
from reports.fit import Coefficient, Fit, fit
from reports.front_end import FrontEndShares, front_end_shares
from reports.observations import GRAPH_CEILING, Observation, SchedulerLimits, merged, without_arrivals
from reports.overlaps import observe_overlaps
from reports.resend import MOST_CALLS, resend
from reports.spans import observe_spans
from reports.steps import observe_steps, share_in_step, token_times
from traces.record import CallRecord, RunHeader, ServerSample

_MIN_DETAILED_SHARE = 0.8
"""With fewer calls whose tokens' times are known, a batch's sequences cannot be counted."""
_GOOD = 0.03
"""Errors of TTFT, E2E and TPOT together below which nothing else is tried."""
_MIN_SHARE_IN_STEP = 0.8
"""With less of the decoding in step, what looks like a step is a part of one."""

UNITS = {
    "floor_s": (1e3, "ms a step"),
    "per_prefill_token_s": (1e6, "us a prompt token"),
    "per_first_prefill_token_s": (1e6, "us for each of a step's first 512 prompt tokens, besides"),
    "per_prefill_attention_s": (1e9, "ns a prompt token and token of context"),
    "per_prefill_context_token_s": (1e6, "us a token that was there before a chunk of a prompt"),
    "mixed_step_s": (1e3, "ms a step that decodes and computes prompts, besides"),
    "per_decode_seq_s": (1e6, "us a sequence and step"),
    "per_decode_context_token_s": (1e9, "ns a token of context and step"),
    "frontend_s": (1e3, "ms a request"),
    "frontend_per_prompt_token_s": (1e6, "us a prompt token, cached or not"),
}
ADVICE = {
    "floor_s": "single calls with long answers and nobody else there",
    "per_prefill_token_s": "single calls with prompts of 64 to 4,096 tokens that are not in the cache",
    "per_first_prefill_token_s": "single calls with prompts of 64 to 512 tokens, and with longer ones",
    "per_prefill_attention_s": "single calls with prompts several times as long as any so far, not in the cache",
    "per_prefill_context_token_s": "long prompts from the cache that come while others get long answers",
    "mixed_step_s": "calls with a few tokens of prompt that come while others get long answers",
    "per_decode_seq_s": "groups of 2, 4, 8 ... calls sent together, with long answers",
    "per_decode_context_token_s": "long answers after prompts as long as the server takes, and after short ones",
    "frontend_s": "single calls with short prompts and one token of answer",
    "frontend_per_prompt_token_s": "the same long prompts again, so that they are in the cache",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a live server's records say it costs, and where they stay silent."""

    fit: Fit
    limits: SchedulerLimits
    notes: tuple[str, ...]
    shares: FrontEndShares = field(default_factory=FrontEndShares)
    """How the front end's time with a request that comes alone divides."""

    @property
    def front_end(self) -> FrontEnd:
        """What a request takes beside its steps."""
        return self.shares.of(self.fit["frontend_s"].value, self.fit["frontend_per_prompt_token_s"].value)

    @property
    def undetermined(self) -> tuple[Coefficient, ...]:
        """Coefficients about which the records say too little."""
        return tuple(one for one in self.fit.coefficients if not one.is_determined)

    @property
    def step_cost(self) -> FittedCost:
        """The server's steps as the mock's engine takes them."""
        return FittedCost(
            floor_s=self.fit["floor_s"].value,
            per_prefill_token_s=self.fit["per_prefill_token_s"].value,
            per_first_prefill_token_s=self.fit["per_first_prefill_token_s"].value,
            per_prefill_attention_s=self.fit["per_prefill_attention_s"].value,
            per_prefill_context_token_s=self.fit["per_prefill_context_token_s"].value,
            mixed_step_s=self.fit["mixed_step_s"].value,
            per_decode_seq_s=self.fit["per_decode_seq_s"].value,
            per_decode_context_token_s=self.fit["per_decode_context_token_s"].value,
            graph_ceiling=GRAPH_CEILING if self.fit.is_padded else 0,
        )


def calibrate(
    runs: Sequence[Sequence[CallRecord]], limits: SchedulerLimits, *, batches: Sequence[Observation] = ()
) -> Calibration:
    """Fit the records of one or more live runs; ``ValueError`` where they are too few.

    ``batches`` are further observations, of whole batches that somebody else timed.
    """
    notes: list[str] = []
    usable = [sorted(filter(_is_usable, calls), key=lambda c: (c.sent_at, c.call_id)) for calls in runs]
    num_calls = sum(len(calls) for calls in usable)
    if not num_calls and batches:
        return Calibration(fit=fit(batches), limits=limits, notes=())
    num_detailed = sum(token_times(call) is not None for calls in usable for call in calls)
    if num_detailed < _MIN_DETAILED_SHARE * num_calls:
        notes.append(
            f"{num_calls - num_detailed} of {num_calls} calls lack their tokens' times, so only calls that were alone"
            " are used; record with --save-detailed to use all"
        )
        return Calibration(fit=fit([*_spans(usable, limits), *batches]), limits=limits, notes=tuple(notes))
    detailed = [[call for call in calls if token_times(call) is not None] for calls in usable]
    if num_detailed < num_calls:
        notes.append(f"{num_calls - num_detailed} of {num_calls} calls are left out: their tokens cannot be told apart")
    if min(share_in_step(calls) for calls in detailed if calls) >= _MIN_SHARE_IN_STEP:
        first = fit(_steps(detailed, limits, frontend_s=0.0))
        steps = _steps(detailed, limits, frontend_s=first["frontend_s"].value)
        by_step = _fitted([*steps, *batches], usable, limits, tuple(notes))
        error = _error(by_step, usable)
        if error < _GOOD:
            return by_step
        why = "whole answers are fitted instead of single steps, which describe them less well"
    else:
        by_step, error = None, np.inf
        why = "tokens arrive in disorder, so whole answers are fitted instead of single steps"
    whole = [*(one for calls in detailed for one in observe_overlaps(calls, limits)), *batches]
    by_answer = _fitted(whole, usable, limits, (*notes, why))
    return by_answer if by_step is None or _error(by_answer, usable) < error else by_step


def _error(found: Calibration, runs: Sequence[Sequence[CallRecord]]) -> float:
    """How far the fitted server is from the records: median relative errors of TTFT, E2E and TPOT, added up."""
    errors: dict[str, list[float]] = {"ttft": [], "e2e": [], "tpot": []}
    for calls in runs:
        part = calls[:MOST_CALLS]
        again = resend(part, found.step_cost, found.limits, found.front_end)
        for call, (first_at, last_at) in zip(part, again, strict=True):
            first, last = call.first_token_at or 0.0, call.last_token_at or 0.0
            errors["ttft"].append(abs(first_at - first) / max(1e-9, first - call.sent_at))
            errors["e2e"].append(abs(last_at - last) / max(1e-9, last - call.sent_at))
            if last > first:
                errors["tpot"].append(abs((last_at - first_at) / (last - first) - 1))
    return sum(float(np.median(one)) for one in errors.values() if one)


def _fitted(
    observations: Sequence[Observation],
    runs: Sequence[Sequence[CallRecord]],
    limits: SchedulerLimits,
    notes: tuple[str, ...],
) -> Calibration:
    """The costs, and once more without what those who arrived have held up, where they did."""
    found = _with_shares(Calibration(fit=fit(observations), limits=limits, notes=notes), runs)
    arrival_s = found.front_end.arrival_s
    if not arrival_s:
        return found
    rest = without_arrivals(observations, arrival_s)
    return _with_shares(Calibration(fit=fit(rest), limits=limits, notes=notes), runs)


def _with_shares(found: Calibration, runs: Sequence[Sequence[CallRecord]]) -> Calibration:
    """``found``, its front end's work told from latency and wake-ups where the records can tell."""
    shares = front_end_shares(
        runs,
        found.step_cost,
        found.limits,
        frontend_s=found.fit["frontend_s"].value,
        per_prompt_token_s=found.fit["frontend_per_prompt_token_s"].value,
    )
    return replace(found, shares=shares)


def calibrate_table(path: Path) -> Calibration:
    """Fit a CSV of measured steps: prefill_tokens, decode_seqs, context (of each sequence), ms."""
    names = ("prefill_tokens", "decode_seqs", "context", "ms")
    observations = []
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames is None or not set(names) <= set(rows.fieldnames):
            raise ValueError(f"{path}: the head row must name {', '.join(names)}, got {rows.fieldnames}")
        for row in rows:
            try:
                prefill, seqs, context, ms = (float(row[name]) for name in names)
            except (TypeError, ValueError):
                raise ValueError(f"{path}:{rows.line_num}: every value must be a number, got {row}") from None
            padded = padded_batch_size(int(seqs), GRAPH_CEILING) if seqs and not prefill else seqs
            observations.append(
                Observation(
                    duration_s=ms / 1000,
                    num_steps=1,
                    num_mixed_steps=float(prefill > 0 and seqs > 0),
                    num_prefill_tokens=prefill,
                    num_first_prefill_tokens=min(prefill, FIRST_PREFILL_TOKENS),
                    prefill_attention=prefill * ((0 if seqs else context) + prefill / 2),
                    num_prefill_context_tokens=context if prefill and not seqs else 0,
                    num_decode_seqs=seqs,
                    num_padded_seqs=padded,
                    num_decode_context_tokens=seqs * context,
                )
            )
    return Calibration(fit=fit(observations), limits=SchedulerLimits(max_num_batched_tokens=8192), notes=())


def profile_of(
    calibration: Calibration,
    *,
    name: str,
    header: RunHeader | None,
    samples: Sequence[ServerSample],
    max_model_len: int,
) -> Profile:
    """The fitted server as a profile for ``mockserver --profile FILE``."""
    block_size = (header.block_size if header else None) or 16
    num_blocks = max((sample.num_blocks or 0 for sample in samples), default=0)
    num_tokens = num_blocks * block_size or 1_000_000
    found = calibration.fit
    sources = {
        coefficient.name: f"fitted: {coefficient.value:.4g} ({coefficient.low:.4g} to {coefficient.high:.4g})"
        + ("" if coefficient.is_determined else ", not determined by the records")
        for coefficient in found.coefficients
    }
    shares, front_end = calibration.shares, calibration.front_end
    if shares.work < 1:
        whole = f"of {found['frontend_s'].value:.4g} s a request, {sources['frontend_s']}"
        sources["frontend_s"] = f"{shares.work:.1%} {whole}"
        sources["frontend_latency_s"] = f"{shares.latency:.1%} {whole}"
        sources["wakeup_s"] = f"{shares.wakeup:.1%} {whole}"
        sources["arrival_s"] = f"{shares.arrival:.1%} {whole}"
    sources["kv_pool_bytes"] = (
        f"{num_blocks} blocks of {block_size} tokens, as the server says; one byte stands for one token"
        if num_blocks
        else "not in the records: a million tokens assumed; one byte stands for one token"
    )
    return Profile(
        name=name,
        description=f"fitted to {found.num_observations} observations",
        model=name,
        step_cost=calibration.step_cost,
        kv_bytes_per_token=1.0,
        kv_pool_bytes=float(num_tokens),
        num_gpus=1,
        block_size=block_size,
        max_num_seqs=(header.max_num_seqs if header else None) or 256,
        max_num_batched_tokens=calibration.limits.max_num_batched_tokens,
        max_model_len=max_model_len,
        frontend_latency_s=front_end.latency_s,
        wakeup_s=front_end.wakeup_s,
        arrival_s=front_end.arrival_s,
        frontend_s=front_end.work_s,
        frontend_per_prompt_token_s=front_end.work_per_prompt_token_s,
        sources=sources,
    )


def _is_usable(call: CallRecord) -> bool:
    return (
        call.error is None
        and call.first_token_at is not None
        and call.last_token_at is not None
        and bool(call.num_prompt_tokens)
        and bool(call.num_output_tokens)
        and not call.num_preemptions
    )


def _spans(runs: Sequence[Sequence[CallRecord]], limits: SchedulerLimits) -> list[Observation]:
    return [one for calls in runs for one in observe_spans(calls, limits)]


def _steps(runs: Sequence[Sequence[CallRecord]], limits: SchedulerLimits, *, frontend_s: float) -> list[Observation]:
    return [one for calls in runs for one in merged(observe_steps(calls, limits, frontend_s=frontend_s))]
