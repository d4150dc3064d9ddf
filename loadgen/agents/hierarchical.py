"""Hierarchical: managers of managers; each plans, fans out to those below it, and joins what they report."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen import recut
from loadgen.agent import Agent
from loadgen.agents.orchestrator import DELEGATE_TOOL, delegate_turn
from loadgen.session import Session
from mockserver.filler import filler
from traces.trajectory import Trajectory, Turn

REPORT_TOKENS = 100


async def hierarchical(task: Trajectory, session: Session, *, depth: int = 2, width: int = 3) -> None:
    """A tree of managers over workers, as high as ``depth`` and with at most ``width`` below each manager.

    Assumes, as the orchestrator does, that the steps of one tool domain need only each other. The task's domains are
    dealt, in order of first use, to as few branches at each level as still give each worker one domain, so a small
    task has a narrow tree; where the tree has no room for that, a worker has several. A manager has the shared system
    prompt, what it was asked, the tool to delegate, and what those below it reported; the topmost has the local tools
    too, and does local steps and text without tools after its join, in recorded order. A worker has the shared system
    prompt, the task, its domains' tools and its own history; it reports what it said last, or its last tool's answer.
    Added to the recording: a planning call by every manager, a report of 100 tokens by every manager but the topmost,
    and a one-line answer where the recording leaves the topmost nothing to say after the join. With a depth of 1 this
    is the orchestrator.
    """
    tree = branch_out("manager", recut.domains(recut.steps(task)), depth=depth, width=width)
    crew = _Crew(task=task, session=session, agent_by_role={})
    top = crew.agent(tree)
    for number, segment in enumerate(recut.segments(task)):
        asked = segment.user_message or (task.user_prompt if number == 0 else "")
        if asked:
            top.hear(asked)
        if segment.parts:
            await crew.manage(tree, segment, number, asked or task.user_prompt)
        for turn in segment.own:
            await top.take_turn(turn)
        if not segment.own:
            await top.say(Turn(content="All parts are done."), is_overhead=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A place in the tree: a manager's, with posts below it, or a worker's."""

    role: str
    domains: tuple[str, ...]
    below: tuple[Post, ...] = ()
    is_top: bool = False


def branch_out(role: str, domains: Sequence[str], *, depth: int, width: int, is_top: bool = True) -> Post:
    """The tree over ``domains``: ``depth`` levels of managers, the worker of a domain under the last of them."""
    if depth == 0:
        return Post(role=role, domains=tuple(domains))
    num_branches = 1
    while num_branches < width and num_branches**depth < len(domains):
        num_branches += 1
    ends = [-(-len(domains) * branch // num_branches) for branch in range(num_branches + 1)]
    groups = [domains[start:end] for start, end in itertools.pairwise(ends) if end > start]
    below = tuple(
        branch_out(
            f"{role}/{'+'.join(group) if depth == 1 else f'team-{number}'}",
            group,
            depth=depth - 1,
            width=width,
            is_top=False,
        )
        for number, group in enumerate(groups)
    )
    return Post(role=role, domains=tuple(domains), below=below, is_top=is_top)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crew:
    """The agents of one task by their posts."""

    task: Trajectory
    session: Session
    agent_by_role: dict[str, Agent]

    def agent(self, post: Post) -> Agent:
        """Whoever holds ``post``: the same one in every segment."""
        agent = self.agent_by_role.get(post.role)
        if agent is None:
            domains = (recut.LOCAL,) if post.is_top else () if post.below else post.domains
            tools = recut.tools_of(self.task, domains)
            if post.below or post.is_top:
                tools = (*tools, DELEGATE_TOOL)
            agent = self.session.agent(post.role, system_prompt=self.task.system_prompt, tools=tools)
            self.agent_by_role[post.role] = agent
        return agent

    async def manage(self, post: Post, segment: recut.Segment, number: int, asked: str) -> None:
        """The manager at ``post`` plans, those below it who have something to do in ``segment`` do it, and report."""
        manager = self.agent(post)
        below = [one for one in post.below if any(domain in segment.parts for domain in one.domains)]
        plan = delegate_turn([one.role.rpartition("/")[2] for one in below], f"{number}-{post.role}")
        await manager.say(plan, is_overhead=True)
        async with asyncio.TaskGroup() as group:
            for one in below:
                agent = self.agent(one)
                agent.follow(manager)
                if asked:
                    agent.hear(asked)
                group.create_task(self._do(one, segment, number, asked))
        for one, call in zip(below, plan.tool_calls, strict=True):
            agent = self.agent(one)
            manager.receive(call.call_id, agent.report, at=agent.due_at)

    async def _do(self, post: Post, segment: recut.Segment, number: int, asked: str) -> None:
        agent = self.agent(post)
        if not post.below:
            for turn in segment.turns_of(post.domains):
                await agent.take_turn(turn)
            return
        await self.manage(post, segment, number, asked)
        report = filler(f"report/{self.task.task_id}/{post.role}/{number}", REPORT_TOKENS)
        await agent.say(Turn(content=report), is_overhead=True)
