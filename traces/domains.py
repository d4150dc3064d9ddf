"""Tool domains: the MCP servers of the Toolathlon benchmark, and which of them a tool belongs to.

The names and counts are facts measured on the public dataset hkust-nlp/Toolathlon-Trajectories (CC-BY-4.0).
"""

from __future__ import annotations

from dataclasses import dataclass

LOCAL = "local"
"""The domain of tools that the agent runs itself; an orchestrator keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server of the benchmark."""

    num_tasks: int
    """How many of the 108 tasks offer it."""
    num_tools: int
    """How many different tools of it two models called; for the first three: how many it offers."""


NUM_LOCAL_TOOLS = 13
MCP_SERVERS = {
    "filesystem": McpServer(num_tasks=86, num_tools=12),
    "playwright_with_chunk": McpServer(num_tasks=23, num_tools=31),
    "memory": McpServer(num_tasks=9, num_tools=9),
    "terminal": McpServer(num_tasks=48, num_tools=1),
    "fetch": McpServer(num_tasks=25, num_tools=4),
    "emails": McpServer(num_tasks=24, num_tools=6),
    "excel": McpServer(num_tasks=23, num_tools=9),
    "pdf-tools": McpServer(num_tasks=20, num_tools=6),
    "google_sheet": McpServer(num_tasks=11, num_tools=10),
    "yahoo-finance": McpServer(num_tasks=10, num_tools=7),
    "woocommerce": McpServer(num_tasks=9, num_tools=14),
    "google-cloud": McpServer(num_tasks=8, num_tools=20),
    "canvas": McpServer(num_tasks=8, num_tools=27),
    "notion": McpServer(num_tasks=8, num_tools=12),
    "github": McpServer(num_tasks=7, num_tools=16),
    "google_map": McpServer(num_tasks=6, num_tools=5),
    "arxiv_local": McpServer(num_tasks=5, num_tools=4),
    "scholarly": McpServer(num_tasks=5, num_tools=2),
    "huggingface": McpServer(num_tasks=5, num_tools=4),
    "k8s": McpServer(num_tasks=5, num_tools=8),
    "snowflake": McpServer(num_tasks=4, num_tools=7),
    "wandb": McpServer(num_tasks=3, num_tools=1),
    "youtube-transcript": McpServer(num_tasks=3, num_tools=1),
    "howtocook": McpServer(num_tasks=2, num_tools=2),
    "git": McpServer(num_tasks=2, num_tools=6),
    "word": McpServer(num_tasks=2, num_tools=11),
    "youtube": McpServer(num_tasks=2, num_tools=5),
    "google_calendar": McpServer(num_tasks=2, num_tools=2),
    "google_forms": McpServer(num_tasks=2, num_tools=4),
    "arxiv-latex": McpServer(num_tasks=1, num_tools=1),
    "pptx": McpServer(num_tasks=1, num_tools=2),
    "rail_12306": McpServer(num_tasks=1, num_tools=4),
}
# Five servers have a '-' in their own name, and 'git' starts 'github': the longest name that fits is the one.
_LONGEST_FIRST = sorted([*MCP_SERVERS, LOCAL], key=len, reverse=True)


def toolathlon_domain(tool_name: str) -> str:
    """The server of a Toolathlon tool: the longest server name that starts it; ``local`` where none does."""
    return next((server for server in _LONGEST_FIRST if tool_name.startswith(server)), LOCAL)


_CODING_TOOLS = {
    "terminal": "bash bash_command bashoutput cmd exec exec_command execute_bash execute_command execute_ipython_cell"
    " ipython killbash killshell local_shell python run run_command run_in_terminal run_ipython run_shell_command"
    " shell shell_command terminal write_stdin",
    "filesystem": "apply_patch create create_file edit edit_file file_editor find_file glob glob_file_search grep"
    " grep_search insert list_dir list_directory ls multiedit notebookedit open open_file read read_file"
    " read_many_files replace scroll_down scroll_up search_dir search_file str_replace_based_edit_tool"
    " str_replace_editor undo_edit view write write_file",
    "web": "browse browse_interactive browser click fetch fetch_url get_document goto google_web_search navigate search"
    " visit_url web_fetch web_search webfetch websearch",
}
PUBLIC_DOMAINS = frozenset({LOCAL, *_CODING_TOOLS, *MCP_SERVERS})
"""Domains whose names say nothing about who recorded them."""
_DOMAIN_BY_TOOL = {name: domain for domain, names in _CODING_TOOLS.items() for name in names.split()}


def domain_of(tool_name: str) -> str:
    """The domain of a tool of any agent: its MCP server, or what a well-known name stands for, else ``local``."""
    if tool_name.startswith("mcp__"):
        return tool_name.split("__")[1] or LOCAL
    server, dot, _ = tool_name.partition(".")
    if dot and server and server not in {"functions", "tools", "default_api"}:
        return server.lower()
    known = next((name for name in _LONGEST_FIRST if tool_name.startswith(f"{name}-")), None)
    if known is not None:
        return known
    return _DOMAIN_BY_TOOL.get(tool_name.rpartition(".")[2].lower(), LOCAL)
