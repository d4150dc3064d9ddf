"""The page's section on architectures: what each run assumed, and its calls per task against published bands."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.bands import HEAD, band_rows
from reports.compare import Comparison

_NOTES = ("architecture", "overhead", "context_policy", "abilities", "max_tools", "tools", "sandboxes", "batch_window")
"""Of what a run's header notes, what is about its agents."""


def architectures(comparison: Comparison) -> str:
    """Markup; empty where no run says what it assumed."""
    said: dict[tuple[str, ...], list[str]] = {}
    for run in comparison.runs:
        texts = [run.header.notes[name] for name in _NOTES if name in run.header.notes]
        if texts:
            said.setdefault(tuple(texts), []).append(run.label)
    if not said:
        return ""
    parts = [
        f"<h3>{escape('; '.join(labels))}</h3>{''.join(f'<p>{escape(text)}</p>' for text in texts)}"
        for texts, labels in said.items()
    ]
    rows = band_rows(comparison.runs)
    if rows:
        parts.insert(0, _table(HEAD, rows))
    return "".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Published bands"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
