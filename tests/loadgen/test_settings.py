from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadgen import resume
from loadgen.config import Settings
from loadgen.sources import READER
from mockserver.settings import OneLineParser, SettingsError, dashed
from tests.loadgen.fakes import make_task
from traces.jsonl import TraceError
from traces.trajectory import Turn


def load(*argv: str, command: str = "run", environ: dict[str, str] | None = None) -> Settings:
    parser = OneLineParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    READER.add_flags(parser, command)
    return READER.load(vars(parser.parse_args([dashed(one) for one in argv])), environ or {})


def test_without_anything_given_the_engine_is_in_this_process_and_time_is_virtual() -> None:
    settings = load()

    assert settings.is_in_process
    assert settings.is_virtual
    assert settings.workload == "toolathlon-like"


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("max-concurrency = 1\nseed = 1\nnum_tasks = 1\ntime_scale = 20\n")

    settings = load(
        "--config", str(config), "--max-concurrency", "3", environ={"LOADGEN_MAX_CONCURRENCY": "2", "LOADGEN_SEED": "2"}
    )

    assert (settings.max_concurrency, settings.seed, settings.num_tasks) == (3, 2, 1)
    assert settings.fixed_time_scale == 20.0


def test_names_of_vllm_are_understood() -> None:
    assert load("--base-url", "http://localhost:8000").target == "http://localhost:8000"
    assert load("--num-prompts", "5", "--max_concurrency=2").num_tasks == 5
    assert load("--result-dir", "x").out == "x"


@pytest.mark.parametrize(
    ("argv", "environ", "text"),
    [
        (("--no-such-flag",), {}, "no-such-flag"),
        ((), {"LOADGEN_NO_SUCH": "1"}, "LOADGEN_NO_SUCH"),
        (("--max-concurrency", "0"), {}, "max_concurrency must be at least 1, got 0"),
        (("--max-concurrency", "many"), {}, "--max-concurrency: .*'many'"),
        ((), {"LOADGEN_SEED": "x"}, "LOADGEN_SEED"),
        (("--target", "localhost"), {}, "got 'localhost'"),
        (("--target", "http", "--clock", "virtual"), {}, "virtual time is for target in-process"),
        (("--time-scale", "fast"), {}, "time_scale must be a number or auto, got 'fast'"),
        (("--time-scale", "0"), {}, "time_scale must be more than 0"),
        (("--architectures", "react"), {}, "architectures"),
    ],
)
def test_what_makes_no_sense_is_one_line(argv: tuple[str, ...], environ: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text) as caught:
        load(*argv, environ=environ)

    assert "\n" not in str(caught.value)


def test_unknown_keys_of_a_file_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("max_concurency = 1\n")

    with pytest.raises(SettingsError, match="unknown setting 'max_concurency'"):
        load("--config", str(config))


def test_an_experiment_has_lists_where_a_run_has_one() -> None:
    settings = load("--architectures", "react", "--prefix-cache", "on", command="experiment")

    assert (settings.architectures, settings.prefix_cache) == (("react",), ("on",))
    with pytest.raises(SettingsError):
        load("--architecture", "react", command="experiment")


def test_the_header_gets_every_setting_as_json_can_hold_it() -> None:
    public: dict[str, Any] = load("--seed", "4").public()

    assert public["seed"] == 4
    assert public["architectures"] == ["react", "orchestrator"]


@pytest.mark.parametrize(
    ("argv", "arrives_at"),
    [
        ((), (0.0, 0.0, 0.0)),
        (("--request-rate", "2", "--burstiness", "inf"), (0.0, 0.5, 1.0)),
        (("--recorded-arrivals",), (0.0, 1.0, 5.0)),
    ],
)
def test_tasks_arrive_as_the_settings_say(argv: tuple[str, ...], arrives_at: tuple[float, ...]) -> None:
    tasks = [make_task(f"t{at}", Turn(content="x"), started_at=at) for at in (10.0, 11.0, 15.0)]

    settings = load(*argv)

    assert settings.arrivals(tasks) == arrives_at
    assert settings.is_open_loop == bool(argv)


def test_a_ramp_and_a_poisson_process_are_open_loops() -> None:
    tasks = [make_task(f"t{k}", Turn(content="x")) for k in range(20)]
    ramp = load("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "4")
    poisson = load("--request-rate", "3")

    assert ramp.is_open_loop
    assert ramp.arrivals(tasks)[1] == pytest.approx(1.0)
    assert len(poisson.arrivals(tasks)) == 20
    assert poisson.arrivals(tasks) != load("--request-rate", "3", "--seed", "1").arrivals(tasks)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--ramp-up-strategy", "linear"), "a ramp needs all"),
        (("--request-rate", "1", "--recorded-arrivals"), "one way"),
        (("--request-rate", "0"), "request_rate must be more than 0"),
        (("--header", "nonsense"), "NAME=VALUE"),
        (("--extra-body", "[1]"), "extra_body must be a JSON object"),
        (("--client", "openai"), "client openai needs a server"),
        (("--warmup", "-1"), "warmup must be at least 0"),
        (("--ray", "auto"), "workers share a server"),
        (("--call-schedule", "x", "--history", "live"), "wait for no answer, which a live history"),
    ],
)
def test_loads_and_targets_that_make_no_sense_are_one_line(argv: tuple[str, ...], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        load(*argv)


def test_stored_settings_come_back_as_they_were_but_for_what_is_given_anew() -> None:
    before = load("--target", "http", "--burstiness", "inf", "--goodput", "ttft:5", "--num-tasks", "3")
    stored = orjson.loads(orjson.dumps(before.public()))

    same = READER.load_over(stored, {}, {"LOADGEN_SEED": "7"}, {"api_key"})
    other = READER.load_over(stored, {"live": False}, {"LOADGEN_API_KEY": "sk", "LOADGEN_SEED": "7"}, {"api_key"})

    assert same == before, "what may not be given anew is not read from the environment"
    assert (other.live, other.api_key, other.seed) == (False, "sk", 0)


def test_secrets_reach_the_headers_and_nothing_else() -> None:
    settings = load(
        *("--target", "http://h:1", "--header", "x-team=a=b", "--extra-body", '{"top_k": 1}', "--stream-interval", "4"),
        environ={"LOADGEN_API_KEY": "sk-secret"},
    )

    assert settings.headers() == {"authorization": "Bearer sk-secret", "x-team": "a=b"}
    assert settings.more_body() == {"top_k": 1, "stream_interval": 4}
    assert "sk-secret" not in str(settings.public())
    assert "x-team" not in str(settings.public())


def test_passwords_in_urls_are_written_nowhere_and_asked_for_again_on_resume() -> None:
    settings = load("--target", "http://me:pw@h:1", "--state", "redis://:pw@h:2/0")
    public = settings.public()
    asked = resume.Asked(command="run", settings=public)

    assert (public["target"], public["state"]) == ("http://me:***@h:1", "redis://:***@h:2/0")
    with pytest.raises(TraceError, match="written nowhere: give --state with it"):
        resume.settings_of(asked, {}, {})
    with pytest.raises(TraceError, match="written nowhere: give --target with it"):
        resume.settings_of(asked, {"state": settings.state}, {})
    again = resume.settings_of(asked, {"state": settings.state, "target": settings.target}, {})
    assert (again.state, again.target, again.resume) == (settings.state, settings.target, True)


def test_a_wrong_header_is_not_repeated_in_the_complaint() -> None:
    with pytest.raises(SettingsError) as caught:
        load("--header", "sk-secret")

    assert "sk-secret" not in str(caught.value)
