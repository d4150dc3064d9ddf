"""The embedded workload ``toolathlon-like``: 295 seeded tasks with the shape of a tool-calling benchmark.

Every number is drawn from a distribution that stands in ``TOOLATHLON_LIKE``; every text is filler of that
many tokens. Randomness comes from one ``random.Random`` per ingredient, so a task is the same however many others
are made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mockserver import tokens
from mockserver.filler import filler
from traces.domains import LOCAL, MCP_SERVERS, NUM_LOCAL_TOOLS
from traces.exact_json import (
    MIN_ARGUMENT_TOKENS,
    MIN_SCHEMA_TOKENS,
    ROOMY_CALL_TOKENS,
    TOOL_NAMES,
    arguments_text,
    schema_text,
)
from traces.prompt_size import END_OF_TURN_TOKENS, tool_call_overhead
from traces.recipe import TOOLATHLON_LIKE, LogNormal, Recipe
from traces.trajectory import ToolCall, ToolSchema, Trajectory, Turn

T = TypeVar("T")

NAME = "toolathlon-like"


def generate(*, seed: int = 0, num_tasks: int | None = None, recipe: Recipe = TOOLATHLON_LIKE) -> Iterator[Trajectory]:
    """The first ``num_tasks`` tasks of the workload (default: all); past its end it goes on with fresh ones."""
    system_prompt = filler(f"{seed}/system", recipe.system_tokens)
    num_tasks = recipe.num_tasks if num_tasks is None else num_tasks
    for first in range(0, num_tasks, recipe.num_tasks):
        all_sizes = draw_sizes(f"{seed}/{first}", recipe)
        for index, sizes in enumerate(itertools.islice(all_sizes, num_tasks - first), start=first):
            yield _Task(seed=seed, index=index, recipe=recipe, sizes=sizes).trajectory(system_prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large one task is."""

    schema_tokens: int
    user_tokens: int
    output_tokens: list[int]
    """One for each call."""
    result_tokens: list[int]
    """One for each call that uses a tool: all but the last."""


def draw_sizes(seed: str, recipe: Recipe) -> Iterator[Sizes]:
    """The sizes of ``recipe.num_tasks`` tasks, drawn together: the workload's quantiles are the recipe's."""

    def draw(ingredient: str, distribution: LogNormal, how_many: int) -> Iterator[int]:
        return iter(distribution.draw_evenly(random.Random(f"{seed}/{ingredient}"), how_many))

    num_calls = list(draw("calls", recipe.num_calls, recipe.num_tasks))
    schema_tokens = draw("schemas", recipe.schema_tokens, recipe.num_tasks)
    user_tokens = draw("users", recipe.user_tokens, recipe.num_tasks)
    output_tokens = draw("outputs", recipe.output_tokens, sum(num_calls))
    result_tokens = draw("results", recipe.result_tokens, sum(num_calls) - recipe.num_tasks)
    for calls, schema, user in zip(num_calls, schema_tokens, user_tokens, strict=True):
        yield Sizes(
            schema_tokens=schema,
            user_tokens=user,
            output_tokens=list(itertools.islice(output_tokens, calls)),
            result_tokens=list(itertools.islice(result_tokens, calls - 1)),
        )


class _Task:
    """One task in the making: each ingredient has random numbers of its own."""

    def __init__(self, *, seed: int, index: int, recipe: Recipe, sizes: Sizes) -> None:
        self.task_id = f"task-{index:03d}"
        self._seed = seed
        self._recipe = recipe
        self._sizes = sizes

    def rng(self, ingredient: str) -> random.Random:
        return random.Random(f"{self._seed}/{self.task_id}/{ingredient}")

    def trajectory(self, system_prompt: str) -> Trajectory:
        sizes = self._sizes
        servers = draw_servers(self.rng("servers"), self._recipe)
        tools = self.tool_schemas(servers, sizes.schema_tokens)
        domains = draw_domains(self.rng("domains"), self._recipe, servers, num_steps=len(sizes.result_tokens))
        return Trajectory(
            task_id=self.task_id,
            user_prompt=filler(self.rng("user"), sizes.user_tokens),
            system_prompt=system_prompt,
            tools=tools,
            turns=self.turns(domains, tools),
            source=NAME,
        )

    def tool_schemas(self, servers: list[str], num_tokens: int) -> tuple[ToolSchema, ...]:
        """The schemas of ``servers`` and of the agent's own tools: ``num_tokens`` tokens in all."""
        rng = self.rng("schemas")
        names = draw_tool_names(servers, num_tools=round(num_tokens / self._recipe.tokens_per_tool))
        sizes = split(rng, num_tokens, num_parts=len(names), at_least=MIN_SCHEMA_TOKENS)
        return tuple(
            ToolSchema(name=name, domain=domain, text=schema_text(name, size, seed=rng))
            for (domain, name), size in zip(names, sizes, strict=True)
        )

    def turns(self, domains: list[str], tools: tuple[ToolSchema, ...]) -> tuple[Turn, ...]:
        """A turn for each step's domain, and the final answer."""
        recipe = self._recipe
        rng = self.rng("turns")
        names_by_domain = {
            domain: [tool.name for tool in group]
            for domain, group in itertools.groupby(tools, key=lambda tool: tool.domain)
        }
        turns = []
        for step, domain in enumerate(domains):
            room = self._sizes.output_tokens[step] // ROOMY_CALL_TOKENS
            num_calls = min(draw_key(rng, recipe.num_parallel_calls), room) if room > 1 else 1
            names = [rng.choice(names_by_domain[domain]) for _ in range(num_calls)]
            turns.append(self.tool_turn(rng, step, domain, names))
        answer = filler(rng, max(self._sizes.output_tokens[-1] - END_OF_TURN_TOKENS, 1))
        turns.append(Turn(content=answer, num_output_tokens=tokens.count(answer) + END_OF_TURN_TOKENS))
        return tuple(turns)

    def tool_turn(self, rng: random.Random, step: int, domain: str, names: list[str]) -> Turn:
        """A turn that calls ``names``; its output is as long as drawn, or as short as such a call can be."""
        recipe = self._recipe
        fixed = END_OF_TURN_TOKENS + sum(tool_call_overhead(name) for name in names)
        num_free = max(self._sizes.output_tokens[step] - fixed, len(names) * MIN_ARGUMENT_TOKENS)
        says_something = rng.random() < recipe.spoken_share
        num_spoken = recipe.spoken_tokens.draw(rng) if says_something else 0
        num_spoken = min(num_spoken, num_free - len(names) * MIN_ARGUMENT_TOKENS)
        argument_sizes = split(rng, num_free - num_spoken, num_parts=len(names), at_least=MIN_ARGUMENT_TOKENS)
        result_sizes = split(rng, self._sizes.result_tokens[step], num_parts=len(names), at_least=1)
        calls = tuple(
            ToolCall(
                call_id=f"{self.task_id}-{step}-{index}",
                name=name,
                domain=domain,
                arguments=arguments_text(argument_size, seed=rng),
                result=filler(rng, result_size),
            )
            for index, (name, argument_size, result_size) in enumerate(
                zip(names, argument_sizes, result_sizes, strict=True)
            )
        )
        return Turn(
            content=filler(rng, num_spoken),
            tool_calls=calls,
            num_output_tokens=fixed + num_spoken + sum(tokens.count(call.arguments) for call in calls),
        )


def draw_key(rng: random.Random, weights: Mapping[T, float]) -> T:
    """One of the keys, each as often as its weight says."""
    (key,) = rng.choices(list(weights), weights=list(weights.values()))
    return key


def draw_servers(rng: random.Random, recipe: Recipe) -> list[str]:
    """The MCP servers that a task offers, each about as often as the benchmark's tasks offer it."""
    weights = {name: server.num_tasks for name, server in MCP_SERVERS.items()}
    servers = []
    for _ in range(draw_key(rng, recipe.num_servers)):
        name = draw_key(rng, weights)
        del weights[name]
        servers.append(name)
    return servers


def draw_domains(rng: random.Random, recipe: Recipe, servers: list[str], *, num_steps: int) -> list[str]:
    """The domain of each step: runs within one server, and each server once before any comes again."""
    domains: list[str] = []
    unvisited = list(servers)
    while len(domains) < num_steps:
        num_left = num_steps - len(domains)
        run = min(recipe.steps_in_domain.draw(rng), num_left)
        if rng.random() < recipe.local_share and num_left > len(unvisited):
            domain = LOCAL
            run = min(run, num_left - len(unvisited))
        elif unvisited:
            domain = unvisited.pop(0)
            run = min(run, max(num_left - len(unvisited), 1))
        else:
            previous = domains[-1] if len(servers) > 1 else None
            domain = rng.choice([server for server in servers if server != previous])
        domains.extend([domain] * run)
    return domains


def draw_tool_names(servers: list[str], *, num_tools: int) -> list[tuple[str, str]]:
    """(domain, name) of about ``num_tools`` tools, shared out as the servers' own numbers are, one at least."""
    sizes = {name: MCP_SERVERS[name].num_tools for name in servers} | {LOCAL: NUM_LOCAL_TOOLS}
    scale = num_tools / sum(sizes.values())
    return [
        (domain, f"{domain}-{TOOL_NAMES[index]}")
        for domain, size in sizes.items()
        for index in range(min(max(round(size * scale), 1), len(TOOL_NAMES)))
    ]


def split(rng: random.Random, total: int, *, num_parts: int, at_least: int) -> list[int]:
    """``total`` in ``num_parts`` random parts, each ``at_least`` so large even where ``total`` is too small."""
    if num_parts == 1:
        return [max(total, at_least)]
    spare = max(total - num_parts * at_least, 0)
    weights = [rng.lognormvariate(0.0, 0.5) for _ in range(num_parts)]
    per_weight = spare / sum(weights)
    parts = [at_least + int(weight * per_weight) for weight in weights]
    parts[0] += num_parts * at_least + spare - sum(parts)
    return parts
