"""What the server writes down: neither prompts nor keys, whatever happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

_PROMPT = "MOSTPRIVATEWORDS"
_KEY = "sk-mostprivatekey"


def _ask(url: str, body: bytes, key: str) -> int:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_logs_hold_neither_prompts_nor_keys(log_format: str) -> None:
    command = [sys.executable, "-m", "mockserver", "--port", "0", "--time-scale", "50", "--api-key", _KEY]
    command += ["--log-format", log_format, "--log-level", "debug", "--access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[3]
        good = json.dumps({"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": 2}).encode()
        bad = json.dumps({"messages": [{"role": _PROMPT, "content": 5}], "temperature": _PROMPT}).encode()
        statuses = [
            _ask(url, good, _KEY),
            _ask(url, bad, _KEY),
            _ask(url, _PROMPT.encode(), _KEY),
            _ask(url, good, _PROMPT),
        ]
        server.send_signal(signal.SIGTERM)
        output, errors = server.communicate(timeout=20)

    assert statuses == [200, 400, 400, 401]
    assert server.returncode == 0
    assert _PROMPT not in output + errors
    assert _KEY not in output + errors
    if log_format == "json":
        assert all(json.loads(line) for line in errors.splitlines())
