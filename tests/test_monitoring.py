"""compose.yaml and the dashboard in docs/monitoring/: they parse, fit each other, and ask for what the mock exposes."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mockserver.api.settings import ServerSettings
from mockserver.clock import WallClock
from tests.mockserver.api.conftest import HELLO, Client, connected

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "docs" / "monitoring"
PROMETHEUS = shutil.which("prometheus")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return list(dashboard["panels"])


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def metric_names(expression: str) -> set[str]:
    """The series a PromQL expression reads: what is left without label matchers, ranges, label lists and functions."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on|group_left|group_right|without)\s*\([^)]*\)", " ", expression)
    return set(re.findall(r"[a-zA-Z_:][\w:]*(?![\w:]*\s*\()", bare))


async def exposed(client: Client) -> dict[str, set[str]]:
    """Every series that /metrics shows, with its label names."""
    _, text = await client.get("/metrics")
    labels_by_name: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels_by_name.setdefault(sample.name, set()).update(sample.labels)
    return labels_by_name


def test_compose_mounts_files_that_exist_and_publishes_to_this_machine_only() -> None:
    compose = loaded(ROOT / "compose.yaml")

    for service in compose["services"].values():
        assert "image" in service
        assert all((ROOT / volume.split(":")[0]).is_file() for volume in service.get("volumes", ()))
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_compose_passes_on_variables_that_the_server_knows() -> None:
    """They have no values here, so one that the shell lacks is not set at all."""
    passed_on = loaded(ROOT / "compose.yaml")["services"]["mockserver"]["environment"]

    known = {f"MOCKSERVER_{field.name.upper()}" for field in dataclasses.fields(ServerSettings)}
    assert set(passed_on) <= known


def test_names_and_ports_agree_between_the_files() -> None:
    """Prometheus scrapes the service that compose starts, Grafana asks that Prometheus, panels ask that data source."""
    services = loaded(ROOT / "compose.yaml")["services"]
    (target,) = loaded(MONITORING / "prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"]
    (source,) = loaded(MONITORING / "datasources.yaml")["datasources"]
    (provider,) = loaded(MONITORING / "dashboards.yaml")["providers"]

    assert target == "mockserver:8000"
    assert "mockserver" in services
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}
    assert any(
        volume.split(":")[1].startswith(provider["options"]["path"]) for volume in services["grafana"]["volumes"]
    )


def test_panels_have_ids_titles_and_places_of_their_own() -> None:
    taken = [
        (x, y)
        for panel in panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels()}) == len({panel["title"] for panel in panels()}) == len(panels())
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


async def test_the_dashboard_asks_for_series_and_labels_that_a_running_mock_exposes() -> None:
    """A series of faults appears with the first one; ``instance`` is Prometheus's own label."""
    async with connected(fault=("500=1.0",)) as client:
        status, _ = await client.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 4})
        series = await exposed(client)

    assert status == 500
    for expression in expressions():
        assert metric_names(expression) <= set(series)
        grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}
        assert grouped <= {"instance"}.union(*(series[name] for name in metric_names(expression)))


@pytest.mark.wall_clock
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
async def test_prometheus_answers_every_expression(tmp_path: Path) -> None:
    """A real Prometheus scrapes a mock that is at work; panels whose subject did not happen may be empty."""
    clock = WallClock()
    address = f"127.0.0.1:{free_port()}"
    async with connected(max_num_seqs=2, time_scale=20.0) as client:
        config = (MONITORING / "prometheus.yaml").read_text(encoding="utf-8")
        target = client.server.base_url.removeprefix("http://")
        (tmp_path / "prometheus.yaml").write_text(
            re.sub(r"2s$", "1s", config.replace("mockserver:8000", target), flags=re.MULTILINE), encoding="utf-8"
        )
        with subprocess.Popen(  # noqa: ASYNC220  # starting it takes no time worth a thread
            [
                str(PROMETHEUS),
                f"--config.file={tmp_path}/prometheus.yaml",
                f"--storage.tsdb.path={tmp_path}/data",
                f"--web.listen-address={address}",
                "--log.level=error",
            ]
        ) as prometheus:
            try:
                for _ in range(16):
                    await client.chat(max_tokens=100)
                    await clock.sleep_until(clock.now() + 0.5)
                empty = [
                    expression for expression in expressions() if not await answer(client.session, address, expression)
                ]
            finally:
                prometheus.terminate()

    assert [expression for expression in empty if "faults" not in expression] == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def answer(session: aiohttp.ClientSession, address: str, expression: str) -> list[Any]:
    query = {"query": expression.replace("$__rate_interval", "8s")}
    async with session.get(f"http://{address}/api/v1/query", params=query) as response:
        body = await response.json()
        assert body["status"] == "success", (expression, body)
        return list(body["data"]["result"])
