"""Calibrating on a mock's own records gives its coefficients back; and what records cannot tell is said."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from mockserver.engine.cost import FittedCost
from mockserver.engine.front_end import FrontEnd
from mockserver.profile_files import read_profile
from reports.__main__ import main
from reports.calibrate import Calibration, calibrate, calibrate_table
from reports.observations import Observation, SchedulerLimits, merged
from reports.overlaps import observe_overlaps
from reports.probes import probes as list_of_probes
from reports.steps import share_in_step, token_times
from tests.reports.mock_records import Probe, in_turn, probes, records_of
from tests.reports.records import make_call, make_sample
from tests.reports.run_files import write_run
from tests.unread import run_unread
from traces.record import CallRecord

LIMITS = SchedulerLimits(max_num_batched_tokens=2048)
COST_NAMES = (
    "floor_s",
    "per_prefill_token_s",
    "per_first_prefill_token_s",
    "per_prefill_attention_s",
    "per_prefill_context_token_s",
    "mixed_step_s",
    "per_decode_seq_s",
    "per_decode_context_token_s",
)


def drawn_cost(seed: int) -> tuple[FittedCost, float]:
    """Coefficients of a server somewhere between a small CPU and a large node, and its front end's share."""
    draw = random.Random(f"{seed}/cost")

    def between(low: float, high: float) -> float:
        return math.exp(draw.uniform(math.log(low), math.log(high)))

    cost = FittedCost(
        floor_s=between(2e-3, 2e-2),
        per_prefill_token_s=between(5e-6, 1e-4),
        per_prefill_attention_s=between(1e-10, 2e-8),
        per_decode_seq_s=between(1e-5, 1e-3),
        per_decode_context_token_s=between(1e-9, 1e-7),
        per_prefill_context_token_s=between(1e-7, 5e-6),
        mixed_step_s=between(5e-4, 1e-2),
        graph_ceiling=draw.choice([0, 512]),
    )
    frontend_s = between(1e-3, 2e-2)
    return replace(cost, per_first_prefill_token_s=between(2e-6, 5e-5)), frontend_s


def assert_found(found: Calibration, cost: FittedCost, frontend_s: float) -> None:
    truth = {name: getattr(cost, name) for name in COST_NAMES} | {"frontend_s": frontend_s}
    for name, value in truth.items():
        coefficient = found.fit[name]
        assert coefficient.low <= value <= coefficient.high, f"{name}: {value} is not in {coefficient}"
        assert coefficient.is_determined


@pytest.mark.parametrize("seed", range(10))
def test_known_coefficients_come_back_within_their_intervals(seed: int) -> None:
    cost, frontend_s = drawn_cost(seed)
    records = records_of(probes(seed, spacing_s=8.0), cost, frontend_s=frontend_s)

    found = calibrate([records], LIMITS)

    assert_found(found, cost, frontend_s)
    assert found.fit.is_padded == (cost.graph_ceiling == 512)
    assert found.fit.median_relative_error < 1e-6


def noisy(records: list[CallRecord], seed: int) -> list[CallRecord]:
    """Every token comes up to 2 ms late, one in fifty much later, and a call's tokens stay in order."""
    draw = random.Random(f"{seed}/noise")
    changed = []
    for record in records:
        at = -math.inf
        times = []
        for due in record.chunk_at:
            late_s = draw.uniform(0, 0.002) + (draw.expovariate(50) if draw.random() < 0.02 else 0.0)
            at = max(at, due + late_s)
            times.append(at)
        changed.append(replace(record, first_token_at=times[0], last_token_at=times[-1], chunk_at=tuple(times)))
    return changed


def test_late_tokens_hardly_move_the_coefficients() -> None:
    cost, frontend_s = drawn_cost(3)
    cost = replace(cost, per_prefill_context_token_s=0.0, per_first_prefill_token_s=0.0)
    runs = [noisy(records_of(probes(seed, spacing_s=8.0), cost, frontend_s=frontend_s), seed) for seed in (3, 4)]

    found = calibrate(runs, LIMITS)

    for name, within in (
        ("floor_s", 0.1),
        ("per_prefill_token_s", 0.25),
        ("per_prefill_attention_s", 0.2),
        ("mixed_step_s", 0.25),
    ):
        assert found.fit[name].value == pytest.approx(getattr(cost, name), rel=within)


def test_late_tokens_leave_the_cost_of_a_chunks_context_as_it_is() -> None:
    """Nearly all chunks are as long as the budget, so noise may take from the one cost of context for the other."""
    cost, frontend_s = drawn_cost(3)
    runs = [noisy(records_of(probes(seed, spacing_s=8.0), cost, frontend_s=frontend_s), seed) for seed in (3, 4)]

    found = calibrate(runs, LIMITS).step_cost

    def of_context(step_cost: FittedCost) -> float:
        return 2048 * step_cost.per_prefill_attention_s + step_cost.per_prefill_context_token_s

    assert of_context(found) == pytest.approx(of_context(cost), rel=0.2)


def test_without_token_times_only_calls_alone_count_and_the_rest_is_said_to_be_unknown() -> None:
    cost, frontend_s = drawn_cost(2)
    cost = replace(cost, per_prefill_context_token_s=0.0, mixed_step_s=0.0, per_first_prefill_token_s=0.0)
    records = records_of(probes(2, spacing_s=8.0), cost, frontend_s=frontend_s, keep_chunks=False)

    found = calibrate([records], LIMITS)

    assert "--save-detailed" in found.notes[0]
    assert found.fit["per_prefill_token_s"].value == pytest.approx(cost.per_prefill_token_s, rel=1e-6)
    unknown = {one.name for one in found.undetermined}
    assert {
        "per_decode_seq_s",
        "mixed_step_s",
        "per_prefill_context_token_s",
        "per_first_prefill_token_s",
    } <= unknown


def test_short_prompts_alone_do_not_tell_attention() -> None:
    cost, _ = drawn_cost(5)
    requests = [Probe(at=float(k), num_prompt_tokens=64, num_output_tokens=20) for k in range(20)]

    found = calibrate([records_of(requests, cost)], LIMITS)

    assert {"per_prefill_attention_s", "per_prefill_token_s"} & {one.name for one in found.undetermined}


def test_the_command_writes_a_profile_that_the_mock_server_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cost, frontend_s = drawn_cost(1)
    records = records_of(probes(1, spacing_s=8.0), cost, frontend_s=frontend_s)
    run = write_run(tmp_path / "live", calls=records, samples=[make_sample(0.0, num_blocks=500)], max_num_seqs=64)
    profile_file = tmp_path / "my-server.toml"

    status = main(["calibrate", "--live", str(run), "-o", str(profile_file), "--max-num-batched-tokens", "2048"])

    profile = read_profile(profile_file)
    assert status == 0
    assert isinstance(profile.step_cost, FittedCost)
    assert profile.step_cost.floor_s == pytest.approx(cost.floor_s, rel=1e-6)
    assert (profile.max_num_seqs, profile.max_num_batched_tokens) == (64, 2048)
    assert profile.engine_config().num_blocks == 500
    assert "floor_s" in capsys.readouterr().out


def test_the_profile_is_written_though_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    cost, frontend_s = drawn_cost(1)
    run = write_run(tmp_path / "live", calls=records_of(probes(1, spacing_s=8.0), cost, frontend_s=frontend_s))
    profile_file = tmp_path / "my-server.toml"

    said = run_unread("reports", "calibrate", "--live", str(run), "-o", str(profile_file))

    assert isinstance(read_profile(profile_file).step_cost, FittedCost)
    assert said == (1, "")


def test_what_records_cannot_tell_is_printed_with_the_requests_that_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cost, _ = drawn_cost(5)
    requests = [Probe(at=float(k), num_prompt_tokens=64, num_output_tokens=20) for k in range(20)]
    run = write_run(tmp_path / "live", calls=records_of(requests, cost))

    main(["calibrate", "--live", str(run)])

    assert "per_prefill_attention_s cannot be told from these records; single calls with" in capsys.readouterr().out


def test_too_few_records_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        calibrate([[make_call()]], LIMITS)


def test_a_chunk_of_two_tokens_is_told_by_its_gap() -> None:
    call = make_call(num_output_tokens=6, chunk_at=(1.0, 1.1, 1.3, 1.4, 1.5))

    times = token_times(call)

    assert times == pytest.approx((1.0, 1.1, 1.2, 1.3, 1.4, 1.5))


def test_many_missing_chunks_cannot_be_told_apart() -> None:
    assert token_times(make_call(num_output_tokens=6, chunk_at=(1.0, 1.5))) is None


def test_jitter_is_averaged_out_and_exact_steps_stay_single() -> None:
    exact = [Observation(duration_s=0.01, num_steps=1) for _ in range(64)]
    jittery = [Observation(duration_s=0.019 if k % 2 else 0.001, num_steps=1) for k in range(64)]

    assert len(merged(exact)) == 64
    assert [one.duration_s for one in merged(jittery)] == pytest.approx([0.16] * 4)


def test_jitter_is_averaged_out_where_most_tokens_come_with_the_one_before() -> None:
    """A client that is held up reads five steps' tokens at once: four of five gaps are nothing."""
    held_up = [Observation(duration_s=0.00001 if k % 5 else 0.05, num_steps=1) for k in range(80)]

    found = merged(held_up)

    assert [one.num_steps for one in found] == [16] * 5
    assert sum(one.duration_s for one in found) == pytest.approx(16 * 0.05 + 64 * 0.00001)


def test_an_answer_that_came_at_once_counts_as_a_whole() -> None:
    """Held back until its end, it tells nothing of single steps, nor of its first token."""
    cost = FittedCost(floor_s=0.01, per_prefill_token_s=1e-5)
    sent = [Probe(at=number, num_prompt_tokens=500, num_output_tokens=32) for number in range(1, 5)]
    *usual, held_back = records_of(sent, cost)
    end = held_back.last_token_at
    assert end is not None
    times = tuple(end - 0.00001 * (31 - place) for place in range(32))
    held_back = replace(held_back, chunk_at=times, first_token_at=times[0], last_token_at=times[-1])

    found = [one for one in observe_overlaps([*usual, held_back], LIMITS) if one.at > held_back.sent_at]

    assert [one.num_steps for one in found] == [32]
    assert found[0].duration_s == pytest.approx(end - held_back.sent_at)
    assert found[0].num_requests == 1
    assert found[0].num_prefill_tokens == 500
    assert found[0].num_decode_seqs == 31


def test_a_table_of_measured_steps_is_fitted(tmp_path: Path) -> None:
    cost = FittedCost(
        floor_s=0.005, per_prefill_token_s=2e-5, per_decode_seq_s=1e-4, per_decode_context_token_s=1e-8, graph_ceiling=0
    )
    lines = ["prefill_tokens,decode_seqs,context,ms"]
    for prefill in (0, 512, 2048, 8192):
        for seqs in (0, 1, 7, 33):
            for context in (100, 5000):
                if prefill or seqs:
                    duration_s = cost.floor_s + 2e-5 * prefill + 1e-4 * seqs + 1e-8 * seqs * context
                    lines.append(f"{prefill},{seqs},{context},{duration_s * 1000}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")

    found = calibrate_table(path)

    for name in ("floor_s", "per_prefill_token_s", "per_decode_seq_s", "per_decode_context_token_s"):
        assert found.fit[name].value == pytest.approx(getattr(cost, name), rel=1e-3)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "prefill_tokens,decode_seqs,context,ms\n1,2,3,fast\n"])
def test_a_table_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"steps\.csv"):
        calibrate_table(path)


def test_tokens_in_disorder_are_fitted_by_whole_answers() -> None:
    """Chunks that come tens of milliseconds late say nothing of single steps; whole answers still do."""
    draw = random.Random("disorder")
    cost = FittedCost(floor_s=0.01, per_prefill_token_s=3e-5, per_decode_seq_s=5e-4, graph_ceiling=0)
    records = []
    for record in records_of(probes(4, spacing_s=8.0), cost):
        times = sorted(at + draw.expovariate(1 / 0.02) for at in record.chunk_at)
        records.append(replace(record, first_token_at=times[0], last_token_at=times[-1], chunk_at=tuple(times)))

    found = calibrate([records], LIMITS)

    assert found.notes == ("tokens arrive in disorder, so whole answers are fitted instead of single steps",)
    assert found.fit["floor_s"].value == pytest.approx(0.01, rel=0.15)
    assert found.fit["per_decode_seq_s"].value == pytest.approx(5e-4, rel=0.3)


def test_whole_answers_tell_what_prompts_cost_those_who_decode() -> None:
    """Tokens that come in disorder: what came while others got long answers is told from what did not."""
    draw = random.Random("meanwhile")
    cost = FittedCost(
        floor_s=0.005,
        per_prefill_token_s=3e-5,
        per_prefill_context_token_s=2e-6,
        per_decode_seq_s=1e-4,
        mixed_step_s=0.006,
        graph_ceiling=0,
    )
    requests = in_turn(list_of_probes(max_model_len=8500, max_num_seqs=16))
    records = []
    for record in records_of(requests, cost, frontend_s=0.01):
        times = sorted(at + draw.expovariate(1 / 0.0015) for at in record.chunk_at)
        records.append(replace(record, first_token_at=times[0], last_token_at=times[-1], chunk_at=tuple(times)))

    found = calibrate([records], LIMITS)

    assert "whole answers are fitted" in found.notes[-1]
    assert found.fit["mixed_step_s"].value == pytest.approx(0.006, rel=0.3)
    assert found.fit["per_prefill_context_token_s"].value == pytest.approx(2e-6, rel=0.3)
    assert found.fit["per_prefill_token_s"].value == pytest.approx(3e-5, rel=0.2)


@pytest.mark.parametrize(("apart_s", "num_steps", "num_first"), [(0.05, 2, 1024), (0.0, 1, 512)])
def test_prompts_whose_first_tokens_come_together_shared_a_step(apart_s: float, num_steps: int, num_first: int) -> None:
    """Two prompts of 600 tokens, apart or together, while another gets a long answer."""
    cost = FittedCost(floor_s=0.01, per_prefill_token_s=1e-5)
    decoding = Probe(at=1.0, num_prompt_tokens=64, num_output_tokens=100)
    coming = [Probe(at=1.37 + apart_s * number, num_prompt_tokens=600, num_output_tokens=1) for number in range(2)]

    found = observe_overlaps(records_of([decoding, *coming], cost), LIMITS)

    assert sum(one.num_mixed_steps for one in found) == num_steps
    assert sum(one.num_first_prefill_tokens for one in found if not one.num_requests) == num_first


def test_what_arrivals_hold_up_is_no_cost_of_steps() -> None:
    """Each of those who come holds the others up by 4 ms, which is not counted as a cost of mixed steps."""
    cost = FittedCost(floor_s=0.005, per_prefill_token_s=3e-5, per_decode_seq_s=1e-4, mixed_step_s=0.006)
    requests = in_turn(list_of_probes(max_model_len=8500, max_num_seqs=16))

    found = calibrate([records_of(requests, cost, front_end=FrontEnd(work_s=0.012, arrival_s=0.004))], LIMITS)

    assert found.front_end.arrival_s == pytest.approx(0.004, rel=0.15)
    assert found.fit["mixed_step_s"].value == pytest.approx(0.006, rel=0.15)


def test_steps_of_a_mock_are_all_in_step() -> None:
    cost, _ = drawn_cost(0)

    assert share_in_step(records_of(probes(0, spacing_s=8.0), cost)) == 1.0
