"""Whether a run may be believed, and if not, why. The first line of every report comes from here."""

from __future__ import annotations

from reports import measure

MAX_LAG_SHARE = 0.05
"""A run is invalid where its p99 lag is more than this part of its median E2E."""
MAX_SEND_LATENESS_S = 0.5
"""A run is invalid where the load generator's p99 lateness is more than this many simulated seconds."""


def invalid_reasons(run: measure.RunColumns) -> tuple[str, ...]:
    """Why this run must not be believed; empty where it may be."""
    header, calls, tasks = run.header, run.calls, run.tasks
    reasons = list(header.invalid_reasons)
    due = measure.due_inside(run)
    if run.window is not None and not due.any():
        reasons.append("no call was due in the part of the run that is measured: warm-up and cool-down leave none")
    e2e = measure.distribution(measure.e2e_s(calls)[due])
    late = measure.run_lag(run)
    if late and e2e and late.p99_s > MAX_LAG_SHARE * e2e.p50:
        reasons.append(
            f"the server was late: p99 lag {late.p99_s:.3g} s is over {MAX_LAG_SHARE:.0%} of the median E2E,"
            f" {e2e.p50:.3g} s"
        )
    sends = measure.run_send_lag(run)
    if sends and sends.p99_s > MAX_SEND_LATENESS_S:
        reasons.append(
            f"the load generator was late: p99 {sends.p99_s:.3g} s after a call could have been sent,"
            f" over {MAX_SEND_LATENESS_S} s"
        )
    num_failed = int((~calls.succeeded).sum())
    if num_failed:
        reasons.append(f"{num_failed} of {len(calls)} calls failed")
    num_off = measure.num_off(calls, calls.num_output_tokens, calls.expected_output_tokens)
    if num_off:
        reasons.append(f"{num_off} of {len(calls)} calls have another number of output tokens than the trace")
    num_ended = int(tasks.succeeded.sum())
    if num_ended < header.num_tasks:
        reasons.append(f"only {num_ended} of {header.num_tasks} tasks ended")
    if not header.complete:
        reasons.append("the run was interrupted")
    return tuple(dict.fromkeys(reasons))
