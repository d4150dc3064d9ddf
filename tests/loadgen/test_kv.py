from __future__ import annotations

from typing import Any

import pytest

from loadgen import kv
from loadgen.commands import main
from mockserver.profile_files import find_profile

LLAMA_70B = find_profile("llama-3.1-70b-4xh100")


def said_by(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["kv", *argv]) == 0
    return capsys.readouterr().out


def test_ten_agents_at_8k_of_a_70b_gqa_model_in_16_bits_take_26_8_gb() -> None:
    assert kv.agents_bytes(LLAMA_70B, 10, 8192) == pytest.approx(26.8e9, rel=0.002)
    assert kv.agents_bytes(LLAMA_70B, 50, 8192) > 100e9


def test_the_command_prints_the_arithmetic_and_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys)

    assert "10 agents x 8,192 tokens x 327,680 bytes = 26.8 GB" in said
    assert "50 agents x 8,192 tokens x 327,680 bytes = 134.2 GB" in said
    assert "a token: 2 x 80 layers x 8 KV heads x 128 x 2 bytes (BF16)" in said
    assert "no two agents share a block" in said


def test_by_data_sheet_a_b200_node_holds_four_times_the_agents_of_an_h100_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = said_by(capsys, "--gpu-memory", "80", "192")

    assert "4.00 x" in said
    assert "4 GPUs x (80 GB x 0.92 - 4 GB) - 141.2 GB of weights" in said


def test_by_the_memory_that_vllm_sees_it_is_three_and_a_half(capsys: pytest.CaptureFixture[str]) -> None:
    assert "3.52 x" in said_by(capsys)


def test_a_node_without_room_for_its_weights_holds_nobody() -> None:
    held = kv.holding(LLAMA_70B, 8192, gpu_memory_gb=24)

    assert held.num_agents == 0


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--profiles", "toaster"), "unknown profile 'toaster'"),
        (("--agents", "0"), "at least 1"),
        (("--gpu-memory", "80"), "each of the 2 nodes, got 1"),
        (("--profiles", "kimi-k2-8xb200", "--gpu-memory", "80"), "leave out --gpu-memory"),
    ],
)
def test_wrong_usage_is_one_line(argv: tuple[Any, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", *argv]) == 2

    said = capsys.readouterr()
    assert text in said.err
    assert said.err.count("\n") == 1
