"""The architectures by name, and a user's own by where its coroutine is: ``package.module:function``."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator

from loadgen.agents.chain import chain
from loadgen.agents.group_chat import group_chat
from loadgen.agents.hierarchical import hierarchical
from loadgen.agents.orchestrator import orchestrator
from loadgen.agents.react import react
from loadgen.agents.recorded import recorded
from loadgen.agents.router import router
from loadgen.session import Session
from traces.trajectory import Trajectory

Architecture = Callable[[Trajectory, Session], Awaitable[None]]

ARCHITECTURES: dict[str, Architecture] = {
    "react": react,
    "orchestrator": orchestrator,
    "chain": chain,
    "hierarchical": hierarchical,
    "group_chat": group_chat,
    "router": router,
}
ALL = "all"
"""Stands for every one of them."""
RECORDED = "recorded"
"""The agents of the recording itself: not a way to re-cut it, so not one of those that are compared."""


class ArchitectureError(ValueError):
    """There is no architecture of that name, or it is not a coroutine; the text is one line for who named it."""


def find_architecture(
    name: str, *, chain_stages: int = 4, hierarchy_depth: int = 2, hierarchy_width: int = 3
) -> Architecture:
    """The architecture ``name``, with what its kind can be told."""
    if name == "chain":
        return functools.partial(chain, num_stages=chain_stages)
    if name == "hierarchical":
        return functools.partial(hierarchical, depth=hierarchy_depth, width=hierarchy_width)
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name == RECORDED:
        return recorded
    if ":" in name:
        return _imported(name)
    raise ArchitectureError(
        f"architecture must be one of {', '.join(ARCHITECTURES)}, {RECORDED},"
        f" or your own as package.module:function, got {name!r}"
    )


def expand(names: Iterable[str]) -> Iterator[str]:
    """``names``, apart at commas, with every architecture where ``all`` stands; each once."""
    found = (name.strip() for text in names for name in text.split(","))
    return iter(dict.fromkeys(one for name in found for one in (ARCHITECTURES if name == ALL else (name,)) if one))


def assumptions(architecture: Architecture) -> str:
    """What ``architecture`` says of itself: its docstring on one line."""
    function = architecture.func if isinstance(architecture, functools.partial) else architecture
    return " ".join((inspect.getdoc(function) or "").replace("``", "").split())


def short_name(name: str) -> str:
    """What a folder can be called: of a user's own architecture, its function."""
    return name.rpartition(":")[2]


def _imported(name: str) -> Architecture:
    module_name, _, function_name = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # a console script does not look where it was started
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a user's module does wrong is told in one line
        raise ArchitectureError(f"architecture {name!r}: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if function is None:
        raise ArchitectureError(f"architecture {name!r}: {module_name} has no {function_name!r}")
    if not inspect.iscoroutinefunction(function):
        raise ArchitectureError(f"architecture {name!r}: must be an async function of (task, session)")
    found: Architecture = function
    return found
