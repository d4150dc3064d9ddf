"""Steps that are all alike, taken at once.

Most of a decode is quiet: everyone gets one token, and nobody comes, ends or lacks a block. The result of taking many
such steps at once is that of taking them one by one, blocks and their order in the cache included.
"""

from __future__ import annotations

from mockserver.engine.batch import Batch
from mockserver.engine.request import Request
from mockserver.engine.scheduler import Scheduler


def max_quiet_steps(scheduler: Scheduler) -> int:
    """How many steps are all alike from here: everyone decodes one token, nobody comes, ends or lacks a block.

    With asynchronous scheduling the state is that between two schedulings, with one batch in flight.
    """
    config = scheduler.config
    running = scheduler.running
    if not running or (scheduler.waiting and len(running) < config.max_num_seqs):
        return 0
    if len(running) > config.max_num_batched_tokens:
        return 0
    num_ahead = 0 if config.async_scheduling else 1
    num_in_flight = 1 - num_ahead
    max_steps = config.max_model_len
    for request in running:
        num_left = request.final_num_tokens - request.num_tokens - 1
        if (
            request.watched
            or num_left < 1
            or request.num_tokens - request.num_computed_tokens != num_ahead
            or request.num_computed_tokens < request.num_prompt_tokens
            or request.num_placeholders != num_in_flight
        ):
            return 0
        max_steps = min(max_steps, num_left)
    while max_steps and _num_blocks_wanted(scheduler, max_steps) > scheduler.pool.num_free:
        max_steps //= 2
    return max_steps


def take_quiet_steps(scheduler: Scheduler, num_steps: int) -> Batch:
    """Take that many such steps at once; returns the batch that is then in flight, if scheduling runs ahead."""
    block_size = scheduler.config.block_size
    num_in_flight = 1 if scheduler.config.async_scheduling else 0
    for request in scheduler.running:
        table = request.table
        request.num_computed_tokens += num_steps
        request.num_tokens += num_steps
        num_more = -(-request.num_computed_tokens // block_size) - table.num_blocks
        if num_more > 0:
            scheduler.pool.take(table, num_more)
    _cache_generated_blocks(scheduler, num_steps, num_in_flight)
    scheduler.num_generated_tokens += num_steps * len(scheduler.running)
    return Batch(sampling=list(scheduler.running))


def _num_blocks_wanted(scheduler: Scheduler, num_steps: int) -> int:
    block_size = scheduler.config.block_size
    return sum(
        max(0, -(-(request.num_computed_tokens + num_steps) // block_size) - request.table.num_blocks)
        for request in scheduler.running
    )


def _cache_generated_blocks(scheduler: Scheduler, num_steps: int, num_in_flight: int) -> None:
    """Make the blocks that quiet steps filled hittable, as single steps would have."""
    if not scheduler.config.enable_prefix_caching:
        return
    block_size = scheduler.config.block_size
    growing: list[tuple[Request, int]] = []
    chain_ids: list[int] = []
    for request in scheduler.running:
        num_full = (request.num_computed_tokens - num_in_flight) // block_size
        num_cached = request.table.num_cached
        if num_full > num_cached:
            growing.append((request, num_full))
            chain_ids.extend(run.chain_id for run in request.path if run.end > num_cached)
    if len(chain_ids) > len(set(chain_ids)):
        _cache_step_by_step(scheduler, growing, num_steps, num_in_flight)
        return
    for request, num_full in growing:
        scheduler.pool.cache(request.table, num_full)


def _cache_step_by_step(
    scheduler: Scheduler, growing: list[tuple[Request, int]], num_steps: int, num_in_flight: int
) -> None:
    """Two requests that generate the same text fill the same blocks: whose copy is the older matters."""
    block_size = scheduler.config.block_size
    filled: list[tuple[int, int, int]] = []
    for order, (request, num_full) in enumerate(growing):
        num_known = request.num_computed_tokens - num_in_flight
        for number in range(request.table.num_cached + 1, num_full + 1):
            filled.append((num_steps - (num_known - number * block_size), order, number))
    for _, order, number in sorted(filled):
        scheduler.pool.cache(growing[order][0].table, number)
