"""Who runs next, with how many tokens, and who must step back: one step's batch, and what its tokens change.

There are no prefill and decode phases (vLLM V1, ``v1/core/sched/scheduler.py``): every request has computed some of
its tokens, and a step hands out a budget of tokens so that ``num_computed_tokens`` catches up with ``num_tokens``.

    |<---- num_computed_tokens ---->|<-- scheduled -->|
    |<------------ num_tokens (+ num_placeholders) -------->|

A request samples a token in the step in which computed reaches the end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from mockserver.engine.batch import Batch
from mockserver.engine.blocks import BlockPool
from mockserver.engine.config import EngineConfig
from mockserver.engine.request import Request, Status
from mockserver.engine.waiting import WaitingQueue, least_urgent


class Scheduler:
    """vLLM's scheduler, synchronous or asynchronous, over a pool of its own."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(num_blocks=config.num_blocks, enable_prefix_caching=config.enable_prefix_caching)
        self.running: list[Request] = []
        """In order of (re)admission."""
        self.waiting: WaitingQueue = WaitingQueue(config.scheduling_policy)
        self.num_preemptions = 0
        self.num_generated_tokens = 0
        self.num_prompt_tokens_admitted = 0
        self.num_prompt_tokens_cached = 0
        """Prompt tokens of first admissions: all, and those that the cache had."""

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """Take a request out, whatever it is doing. Its cached blocks stay behind as the next to be reused."""
        if request.status is not Status.FINISHED:
            self._finish(request)
            request.finish_reason = "abort"

    def num_cached_tokens_of(self, request: Request) -> int:
        """Prompt tokens that the cache would save a request that were admitted now."""
        return self._num_hit_blocks(request) * self.config.block_size

    def schedule(self) -> Batch:
        """Decide the next batch and count its tokens as computed."""
        batch = Batch()
        budget = self._schedule_running(batch)
        if budget and self.waiting and not batch.preempted:
            self._schedule_waiting(batch, budget)
        return batch

    def update(self, batch: Batch) -> list[Request]:
        """Add the tokens that a batch sampled; returns the requests that ended with it, in batch order."""
        is_async = self.config.async_scheduling
        block_size = self.config.block_size
        has_ended = Status.FINISHED
        finished: list[Request] = []
        num_discarded = 0
        for request in batch.sampling:
            if request.status is has_ended:
                num_discarded += 1  # aborted, or it stopped by surprise one batch earlier
                continue
            num_tokens = request.num_tokens = request.num_tokens + 1
            if is_async:
                num_placeholders = request.num_placeholders = request.num_placeholders - 1
                num_known = request.num_computed_tokens - num_placeholders
                # Where it was not scheduled again meanwhile, only now is the token known that completed the block.
                if not num_known % block_size and request.status is Status.RUNNING:
                    num_full = num_known // block_size
                    if num_full > request.table.num_cached:
                        self.pool.cache(request.table, num_full)
            if num_tokens == request.final_num_tokens:
                self._finish(request)
                finished.append(request)
        self.num_generated_tokens += len(batch.sampling) - num_discarded
        return finished

    def check_invariants(self, requests: list[Request]) -> None:
        """Assert what is always true, given all live requests. For tests."""
        config = self.config
        assert len(self.running) <= config.max_num_seqs
        assert {*self.running, *self.waiting} == set(requests)
        for request in requests:
            is_running = request.status is Status.RUNNING
            assert is_running == (request in self.running)
            assert is_running or request.table.num_blocks == 0
            assert request.num_computed_tokens <= request.num_tokens + request.num_placeholders
            assert request.table.num_cached <= request.table.num_blocks
            assert request.num_computed_tokens <= request.table.num_blocks * config.block_size
        self.pool.check_invariants([request.table for request in requests])

    def _schedule_running(self, batch: Batch) -> int:
        """Hand out the budget to running requests, in list order; returns what is left of it."""
        config = self.config
        is_async = config.async_scheduling
        block_size = config.block_size
        sample = batch.sampling.append
        budget = config.max_num_batched_tokens
        last_position = config.max_model_len - 1
        num_steady_placeholders = 1 if is_async else 0
        num_steady = num_context_tokens = 0
        start: int | None = 0
        while start is not None:
            requests, start = itertools.islice(self.running, start, None), None
            for request in requests:
                if num_steady >= budget:
                    break
                num_placeholders = request.num_placeholders
                computed = request.num_computed_tokens
                if computed < request.steady_until and num_placeholders == num_steady_placeholders:
                    # Nearly all there is: one token within a block. It takes none, and fills none that is known yet.
                    sample(request)
                    request.num_computed_tokens = computed + 1
                    if is_async:
                        request.num_placeholders = 2
                    num_steady += 1
                    num_context_tokens += computed
                    continue
                if num_placeholders and computed + 2 - num_placeholders >= request.limit_num_tokens:
                    continue  # what is in flight brings it to max_tokens
                num_new = request.num_tokens + num_placeholders - computed
                if num_new > 1:
                    num_new = min(num_new, self._long_prefill_cap(), budget - num_steady, last_position - computed)
                if num_new <= 0 or computed >= last_position:
                    continue
                end = computed + num_new
                room = self._take_blocks(batch, request, -(-end // block_size))
                budget += room.refund
                if not room.has_room:
                    break
                num_full = min(end, request.num_tokens) // block_size
                if num_full > request.table.num_cached:
                    self.pool.cache(request.table, num_full)
                self._advance(batch, request, num_new)
                if num_new == 1 and computed >= request.num_prompt_tokens:
                    request.steady_until = self._steady_until(request)
                budget -= num_new
                if room.next_index is not None:
                    start = room.next_index
                    break
        batch.shape.num_decode_seqs += num_steady
        batch.shape.num_decode_context_tokens += num_context_tokens
        return budget - num_steady

    def _steady_until(self, request: Request) -> int:
        """Up to where a decoding request's computed tokens may grow before it needs more than its next token."""
        config = self.config
        computed = request.num_computed_tokens
        if not computed % config.block_size:
            return 0
        border = (computed // config.block_size + 1) * config.block_size
        if config.async_scheduling:
            return min(border, request.limit_num_tokens - 1, config.max_model_len - 1)
        return min(border - 1, config.max_model_len - 1)  # the block's last token is known: it fills the block

    def _take_blocks(self, batch: Batch, request: Request, num_blocks: int) -> _Room:
        """Let a running request hold ``num_blocks``, preempting until they are free, or until it had to go itself."""
        num_more = num_blocks - request.table.num_blocks
        room = _NOBODY_MOVED if num_more <= self.pool.num_free else self._make_room(batch, request, num_more)
        if room.has_room and num_more > 0:
            self.pool.take(request.table, num_more)
        return room

    def _make_room(self, batch: Batch, request: Request, num_blocks: int) -> _Room:
        """Preempt until ``num_blocks`` are free, or until the request itself had to go."""
        refund = 0
        next_index = self.running.index(request) + 1
        while num_blocks > self.pool.num_free:
            if self.config.scheduling_policy == "priority":
                victim = max(self.running, key=least_urgent)
                self.running.remove(victim)
                if victim in batch:
                    refund += self._take_back(batch, victim)
                    next_index -= 1
            else:
                victim = self.running.pop()
            self._preempt(victim)
            batch.preempted.append(victim)
            if victim is request:
                return _Room(False, refund, None)
        return _Room(True, refund, next_index)

    def _preempt(self, request: Request) -> None:
        self.pool.free(request.table)
        request.status = Status.PREEMPTED
        request.num_computed_tokens = request.steady_until = 0
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.add_first(request)

    def _schedule_waiting(self, batch: Batch, budget: int) -> None:
        """Admit from the head of the queue while budget, sequences and blocks last; the head blocks all others."""
        config = self.config
        block_size = config.block_size
        pool = self.pool
        while self.waiting and budget and len(self.running) < config.max_num_seqs:
            request = self.waiting.first()
            table = request.table
            num_hits = self._num_hit_blocks(request)
            num_cached = num_hits * block_size
            num_new = min(request.num_tokens - num_cached, self._long_prefill_cap())
            if num_new > budget:
                if not config.enable_chunked_prefill:
                    break
                num_new = budget
            num_more = -(-(num_cached + num_new) // block_size) - num_hits
            num_whole = -(-min(request.num_tokens, config.max_model_len) // block_size) - num_hits
            # Hit blocks that nobody holds count too: touching them takes them out of the free queue. The whole
            # prompt must fit, although only the first chunk's blocks are taken (scheduler_reserve_full_isl).
            if max(num_more, num_whole) + pool.num_free_among_hits(table.path, num_hits) > pool.num_free:
                break
            self.waiting.pop_first()
            self.running.append(request)
            if num_hits:
                pool.touch(table, num_hits)
            pool.take(table, num_more)
            num_full = min(num_cached + num_new, request.num_tokens) // block_size
            if num_full > table.num_cached:
                pool.cache(table, num_full)
            if request.status is Status.PREEMPTED:
                batch.resumed.append(request)
            else:
                request.num_cached_tokens = num_cached
                batch.admitted.append(request)
                self.num_prompt_tokens_cached += num_cached
                self.num_prompt_tokens_admitted += request.num_prompt_tokens
            request.status = Status.RUNNING
            request.num_computed_tokens = num_cached
            self._advance(batch, request, num_new)
            budget -= num_new

    def _num_hit_blocks(self, request: Request) -> int:
        """Cached blocks it may use: never its last token, which the model must run on to produce logits."""
        if not self.config.enable_prefix_caching or request.skip_reading_prefix_cache:
            return 0
        return self.pool.num_hit_blocks(request.path, (request.num_tokens - 1) // self.config.block_size)

    def _long_prefill_cap(self) -> int:
        threshold = self.config.long_prefill_token_threshold
        if threshold and len(self.running) + len(self.waiting) > 1:
            return threshold
        return self.config.max_num_batched_tokens

    def _advance(self, batch: Batch, request: Request, num_new: int) -> None:
        """Put ``num_new`` tokens of a request into the batch: they count as computed at once, before it runs."""
        if num_new > 1:
            batch.num_tokens_by_request[request] = num_new
        computed = request.num_computed_tokens
        end = request.num_computed_tokens = computed + num_new
        is_decode = num_new == 1 and computed >= request.num_prompt_tokens
        batch.shape.add(computed, num_new, is_decode=is_decode)
        if end >= request.num_tokens + request.num_placeholders:
            batch.sampling.append(request)
            if not is_decode:
                batch.prompts_done.append(request)
            if self.config.async_scheduling:
                request.num_placeholders += 1
        else:
            batch.unfinished.append((len(batch.sampling), request))

    def _take_back(self, batch: Batch, request: Request) -> int:
        """Take a request that must step back out of the batch; returns the tokens it had in it."""
        if self.config.async_scheduling and request in batch.sampling:
            request.num_placeholders -= 1
        num_new = batch.remove(request)
        computed = request.num_computed_tokens - num_new
        batch.shape.add(computed, -num_new, is_decode=num_new == 1 and computed >= request.num_prompt_tokens)
        return num_new

    def _finish(self, request: Request) -> None:
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.pool.free(request.table)
        request.status = Status.FINISHED


@dataclass(frozen=True, slots=True)
class _Room:
    """What making room came to."""

    has_room: bool
    refund: int
    """Tokens given back by preempted requests that this step had served already."""
    next_index: int | None
    """Where in ``running`` the step goes on, as vLLM counts: one back for each that it had served; None: with the
    next."""


_NOBODY_MOVED = _Room(has_room=True, refund=0, next_index=None)
