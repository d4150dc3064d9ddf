"""What breaks a run from outside is one clear line, and what was measured by then is kept."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.call import Call, Completion
from loadgen.commands import main
from loadgen.reachable import CheckedTransport
from loadgen.target import TargetError
from tests.loadgen.running import wait_for_calls
from tests.loadgen.stores.servers import free_port
from tests.loadgen.test_resume import of_the_client, write_workload
from tests.loadgen.transports.test_http import make_call
from traces.jsonl import read_run

LOADGEN = (sys.executable, "-m", "loadgen")


@contextlib.contextmanager
def mock_server(port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ("--host", "127.0.0.1", "--port", str(port), "--time-scale", "4")
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "mockserver", *options], stdout=file, stderr=file)
        try:
            wait_until_it_listens(process, port)
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


@pytest.mark.parametrize("kilobytes", [8, 16])
def test_a_full_disk_stops_the_run_and_it_goes_on_where_there_is_room_again(kilobytes: int, tmp_path: Path) -> None:
    """No file may grow past a limit. Where it is small, not even the header can be written anew at the end."""
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=10)
    directory = tmp_path / "run"
    command = [*LOADGEN, "run", "--workload", workload, "--no-live"]
    limited = ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "limited", *command, "--out", str(directory)]

    done = subprocess.run(limited, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"{directory}/calls.jsonl: File too large; " in done.stderr
    assert f"`loadgen resume {directory}` goes on from there" in done.stderr
    before = read_run(directory)
    assert len(before.calls) > 5
    assert (directory / "calls.jsonl").read_bytes().endswith(b"}\n"), "only whole records"
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]
    assert main(["resume", str(directory), "--no-live"]) == 0
    assert main([*command[3:], "--out", str(tmp_path / "undisturbed")]) == 0
    assert of_the_client(read_run(directory)) == of_the_client(read_run(tmp_path / "undisturbed"))


@pytest.mark.wall_clock
def test_a_server_that_goes_stops_the_run_and_it_goes_on_when_there_is_one_again(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=10)
    directory, port = tmp_path / "run", free_port()
    url = f"http://127.0.0.1:{port}/v1"
    command = [*LOADGEN, "run", "--workload", workload, "--no-live", "--base-url", url, "--out", str(directory)]
    with mock_server(port, tmp_path / "log") as server:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_calls(process, directory, num_calls=10)
        server.kill()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert err.count("\n") == 1, err
    assert f"stopped: {url} does not answer any more" in err
    assert f"`loadgen resume {directory}` goes on from there" in err
    assert all(call.error is None for call in read_run(directory).calls), "nobody was there to fail them"
    with mock_server(port, tmp_path / "log"):
        assert main(["resume", str(directory), "--no-live"]) in (0, 1)
    run = read_run(directory)
    assert run.header.complete
    assert run.summary["failed"] == 0
    assert len(run.calls) == sum(task.num_calls for task in run.tasks) == 44


class Failing:
    """A transport all of whose calls break off."""

    async def complete(self, call: Call) -> Completion:
        return Completion(sent_at=0.0, ended_at=1.0, error="ServerDisconnectedError", status=None)


@pytest.mark.wall_clock
async def test_a_call_that_broke_off_has_failed_where_the_server_is_there_again_in_time() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(TargetError, match=f"{url} does not answer any more .*ServerDisconnectedError"):
        await CheckedTransport(inner=Failing(), url=url).complete(make_call())

    patient = CheckedTransport(inner=Failing(), url=url, patience_s=20.0)
    waiting = asyncio.get_running_loop().create_task(patient.complete(make_call()))
    await asyncio.sleep(0.7)
    assert not waiting.done()

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        assert (await waiting).error == "ServerDisconnectedError"


def test_a_name_that_nobody_knows_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "--num-tasks", "1", "--base-url", "http://no-such-host.invalid:8000", "--no-live"])

    err = capsys.readouterr().err
    assert code == 2
    assert err.count("\n") == 1
    assert "http://no-such-host.invalid:8000/v1/models: ClientConnectorDNSError: Cannot connect to host" in err


@contextlib.contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[int]:
    """A port where somebody answers in TLS, or with nothing that TLS understands."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with contextlib.suppress(OSError), connection:
                        if context is None:
                            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        else:
                            context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.wall_clock
@pytest.mark.parametrize(("is_tls", "text"), [(False, "SSL"), (True, "self-signed certificate")])
def test_a_server_that_cannot_be_trusted_is_one_line(
    is_tls: bool, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = None
    if is_tls:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes a certificate, is not installed")
        key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
        subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    with listening(context) as port:
        code = main(["run", "--num-tasks", "1", "--base-url", f"https://127.0.0.1:{port}", "--no-live"])

    err = capsys.readouterr().err
    assert code == 2
    assert err.count("\n") == 1
    assert f"https://127.0.0.1:{port}/v1/models: " in err
    assert text in err
