from __future__ import annotations

import pytest

from loadgen.agents.react import react
from loadgen.config import Settings
from loadgen.harness import Harness
from loadgen.shard import Shard
from loadgen.tool_layer import Execution, ToolLayer, WorkerPool, failure_text
from loadgen.tools import DOMAIN_TIMES, ToolTimes
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn

RECORDED = ToolTimes(recorded=True, mean_s=0.0)


def run(layer: ToolLayer, call_id: str, latency_s: float, *, at: float, domain: str = "local") -> Execution:
    return layer.run("t", make_call(call_id, domain, latency_s=latency_s), asked_at=at)


def test_workers_take_calls_in_the_order_they_come() -> None:
    pool = WorkerPool(2)

    assert [pool.start(at, duration_s) for at, duration_s in ((0, 5), (1, 1), (1, 1), (2, 9), (9, 1))] == [
        0,
        1,
        2,
        3,
        9,
    ]


def test_tools_on_our_cpus_queue_for_a_worker_and_remote_ones_do_not() -> None:
    layer = ToolLayer(times=RECORDED, cpu_pool=WorkerPool(1))

    first, second = (run(layer, name, 2.0, at=0.0) for name in "ab")
    remote = run(layer, "c", 2.0, at=0.0, domain="github")

    assert (first.started_at, first.answered_at) == (0.0, 2.0)
    assert (second.started_at, second.answered_at) == (2.0, 4.0)
    assert (remote.started_at, remote.answered_at) == (0.0, 2.0)
    assert layer.totals.queue_s == 2.0


def test_tools_on_a_gpu_have_workers_of_their_own() -> None:
    layer = ToolLayer(times=RECORDED, cpu_pool=WorkerPool(1), gpu_pool=WorkerPool(1), gpu_domains={"vision"})

    cpu = run(layer, "a", 2.0, at=0.0)
    gpu = [run(layer, name, 3.0, at=0.0, domain="vision") for name in "bc"]

    assert (cpu.started_at, [one.started_at for one in gpu]) == (0.0, [0.0, 3.0])


def test_parsing_serialising_and_injecting_take_their_milliseconds() -> None:
    layer = ToolLayer(times=RECORDED, has_overheads=True)

    for number in range(200):
        done = run(layer, f"c{number}", 1.0, at=10.0)
        assert 0.001 <= done.started_at - 10.0 <= 0.005
        assert done.ended_at == pytest.approx(done.started_at + 1.0)
        assert 0.0011 <= done.answered_at - done.ended_at <= 0.004
    totals = layer.totals
    assert totals.parse_s / 200 == pytest.approx(0.003, rel=0.1)
    assert totals.serialise_s / 200 == pytest.approx(0.002, rel=0.1)
    assert "200 tool calls: parsing 0.6 s" in totals.text()


def test_a_tool_that_takes_too_long_is_tried_again_and_then_given_up() -> None:
    layer = ToolLayer(times=RECORDED, timeout_s=1.0, num_retries=2)

    done = run(layer, "a", 5.0, at=0.0)

    assert done.is_failed
    assert done.answered_at == 3.0
    assert (layer.totals.num_timeouts, layer.totals.num_retries, layer.totals.num_given_up) == (3, 2, 1)


def test_a_retry_draws_another_time() -> None:
    times = ToolTimes(seed=1)
    call = make_call("a", "mail")

    assert times.latency_s("t", call, attempt=1) != times.latency_s("t", call)


def test_failures_come_as_often_as_told() -> None:
    layer = ToolLayer(times=RECORDED, failure_rate=0.3)

    failed = [run(layer, f"c{number}", 1.0, at=0.0).is_failed for number in range(1000)]

    assert sum(failed) == pytest.approx(300, abs=45)


def test_a_tool_that_is_given_up_is_asked_for_once_more_and_then_answers() -> None:
    mail = make_call("a", "mail", latency_s=5.0, result="sent")
    files = make_call("b", "files", latency_s=0.5, result="42 files")
    task = make_task("t", Turn(tool_calls=(mail, files)), Turn(content="done"))
    layer = ToolLayer(times=RECORDED, timeout_s=1.0)

    recorder, transport = replay_virtually(react, task, harness=Harness(tools=layer))

    assert [call.sent_at for call in recorder.calls] == [0.0, 2.0, 8.0]
    assert [(tool.name, tool.started_at, tool.ended_at, tool.is_error) for tool in recorder.tools] == [
        ("mail-do", 1.0, 2.0, True),
        ("files-do", 1.0, 1.5, False),
        ("mail-do", 3.0, 8.0, False),
    ]
    history = transport.prompts["t/react#2"][2:]
    assert [message["content"] for message in history if message["role"] == "tool"] == [
        failure_text(mail),
        "42 files",
        "sent",
    ]
    assert recorder.num_overhead_calls == 1


def test_a_layer_that_adds_nothing_changes_nothing() -> None:
    task = make_task("t", *(Turn(tool_calls=(make_call(f"c{number}", "mail"),)) for number in range(5)))
    times = ToolTimes(seed=3)

    plain, _ = replay_virtually(react, task, tool_times=times)
    layered, _ = replay_virtually(react, task, tool_times=times, harness=Harness(tools=ToolLayer(times=times)))

    assert plain.digest() == layered.digest()


def test_times_by_domain_lie_between_ten_milliseconds_and_half_a_minute() -> None:
    times = ToolTimes(by_domain=True)

    drawn = {
        domain: [times.latency_s("t", make_call(f"c{number}", domain)) for number in range(300)]
        for domain in (*DOMAIN_TIMES, "github")
    }

    assert all(0.01 <= one <= 30.0 for values in drawn.values() for one in values)
    assert sorted(drawn["terminal"])[150] == pytest.approx(0.12, rel=0.25)
    assert sorted(drawn["playwright_with_chunk"])[150] > 10 * sorted(drawn["terminal"])[150]
    assert times.is_remote("github")
    assert not times.is_remote("terminal")


def test_the_layer_is_there_when_a_setting_asks_for_it() -> None:
    assert Settings().harness(is_our_model=True).tools is None
    layer = Settings(tool_workers=3, gpu_tools=("vision",), tool_timeout=2.0).harness(is_our_model=True).tools
    assert layer is not None
    assert (layer.timeout_s, layer.num_retries, set(layer.gpu_domains)) == (2.0, 2, {"vision"})


def test_a_shard_has_its_share_of_workers_and_sandboxes() -> None:
    settings = Settings(tool_workers=3, max_sandboxes=10, max_sandbox_memory=8.0)

    shards = [settings.harness(is_our_model=True, shard=Shard(number=number, num_shards=2)) for number in (0, 1)]

    pools = [shard.sandboxes for shard in shards if shard.sandboxes is not None]
    assert [pool.most_sandboxes for pool in pools] == [5, 5]
    assert [pool.most_memory_bytes for pool in pools] == [4e9, 4e9]
    layers = [shard.tools for shard in shards if shard.tools is not None]
    starts = [[layer.cpu_pool.start(0.0, 1.0) for _ in range(2)] for layer in layers if layer.cpu_pool is not None]
    assert starts == [[0.0, 0.0], [0.0, 1.0]], "two workers and one"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tool_timeout": 0.0}, "timeout must be more than 0 s, got 0"),
        ({"tool_failure_rate": 1.0}, r"must be in \[0, 1\), got 1.0"),
        ({"tool_retries": -1}, "retries must be at least 0, got -1"),
        ({"tool_workers": 0}, "tool_workers must be at least 1, got 0"),
        ({"gpu_tool_workers": 0}, "gpu_tool_workers must be at least 1, got 0"),
        ({"tool_latency_mean": -1.0}, "at least 0 s, got -1.0"),
        ({"batch_window": 0.0}, "batch window must be more than 0 s"),
        ({"max_sandboxes": 0}, "max_sandboxes must be at least 1, got 0"),
        ({"max_sandbox_memory": 0.1}, "0.512 GB, got 0.1"),
        ({"context_policy": "window", "context_tokens": 0}, "max_tokens of a context policy must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Settings(**settings)  # type: ignore[arg-type]
