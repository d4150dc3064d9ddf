"""The list of probes is enough: sent to a mock, it determines everything there is."""

from __future__ import annotations

import json

import pytest

from mockserver.engine.cost import FittedCost
from reports.__main__ import main
from reports.calibrate import calibrate
from reports.observations import SchedulerLimits
from reports.probes import probes
from tests.reports.mock_records import in_turn, records_of


def test_the_list_determines_every_coefficient() -> None:
    """The mock has no front end that reads prompts, so the repeats that tell about one are left out."""
    cost = FittedCost(
        floor_s=0.006,
        per_prefill_token_s=3e-5,
        per_first_prefill_token_s=1e-5,
        per_prefill_attention_s=1e-9,
        per_decode_seq_s=1e-4,
        per_decode_context_token_s=2e-8,
        per_prefill_context_token_s=5e-7,
        mixed_step_s=0.002,
    )
    found = [one for one in probes(max_model_len=20_000, max_num_seqs=64) if one.tells != "frontend_per_prompt_token_s"]

    calibration = calibrate(
        [records_of(in_turn(found), cost, frontend_s=0.01)], SchedulerLimits(max_num_batched_tokens=2048)
    )

    assert {one.name for one in calibration.undetermined} <= {"frontend_per_prompt_token_s"}
    assert calibration.fit["per_decode_seq_s"].value == pytest.approx(1e-4, rel=1e-3)


def test_a_repeated_prompt_follows_its_first_time() -> None:
    found = probes(max_model_len=8192, max_num_seqs=8, repeats=1)

    again = [one for one in found if one.tells == "frontend_per_prompt_token_s"]
    assert all(any(first.prompt == one.prompt and first.group < one.group for first in found) for one in again)


def test_prompts_that_come_meanwhile_find_others_being_answered() -> None:
    late = [one for one in probes(max_model_len=8192, max_num_seqs=8, repeats=1) if one.delay_s]

    assert {one.tells for one in late} == {"mixed_step_s", "per_prefill_context_token_s"}
    for one in late:
        group = [other for other in probes(max_model_len=8192, max_num_seqs=8, repeats=1) if other.group == one.group]
        assert any(other.delay_s < one.delay_s and other.num_output_tokens > 20 for other in group)


def test_a_mixture_overlaps_and_has_known_prompts_that_have_grown() -> None:
    found = probes(max_model_len=8192, max_num_seqs=8, repeats=1)

    mixture = [one for one in found if one.num_output_tokens == 24]
    first_length = {one.prompt: one.num_prompt_tokens for one in reversed(found) if one not in mixture}
    assert [one.delay_s for one in mixture] == sorted({one.delay_s for one in mixture})
    known = [one for one in mixture if one.prompt in first_length]
    assert 0 < len(known) < len(mixture)
    assert all(one.num_prompt_tokens > first_length[one.prompt] for one in known)
    assert all(any(one.prompt == other.prompt and other.group < one.group for other in found) for one in known)


def test_no_probe_is_longer_than_the_context() -> None:
    found = probes(max_model_len=2048, max_num_seqs=4)

    assert all(one.num_prompt_tokens + one.num_output_tokens <= 2048 for one in found)
    shortest = probes(max_model_len=256, max_num_seqs=4)
    assert all(one.num_prompt_tokens + one.num_output_tokens <= 256 for one in shortest)


def test_the_command_prints_a_request_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["probes", "--max-model-len", "4096", "--repeats", "1"])

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert lines[0]["num_prompt_tokens"] == 64


def test_a_context_too_short_to_probe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probes", "--max-model-len", "100"]) == 2
    assert "max_model_len must be at least 256" in capsys.readouterr().err
