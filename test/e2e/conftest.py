"""A built server for the tests: started on a free loopback port, awaited by condition, stopped at the end."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("HEDDLE_BUILD", "release")
PROGRAM = ROOT / "build" / BUILD / "heddle"
SMOLLM2 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = ROOT / "models" / "gemma-3-270m-q4_k_m.gguf"
SANITISED = BUILD in ("asan", "tsan")
# Sanitised programs of gcc 12 need the address space of before kernels with 32 random bits.
PREFIX = ["setarch", os.uname().machine, "-R"] if SANITISED else []


def wait_for(condition, what, seconds=60 if SANITISED else 20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)  # between looks at the condition, which is what is waited for
    raise AssertionError(f"not within {seconds} s: {what}")


class Server:
    def __init__(self, *arguments, model=SMOLLM2):
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*PREFIX, PROGRAM, "serve", model, "--port", "0", *map(str, arguments)], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def log(self):
        return "".join(self.lines)

    def port(self):
        def find():
            if self.process.poll() is not None:
                self._reader.join()
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log}")
            found = re.search(r"listening on http://[^ ,]*:(\d+)", self.log)
            return found and int(found.group(1))

        return wait_for(find, "the port in the log")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port()}"

    def ready(self):
        wait_for(lambda: self.get("/health")[0] == 200, "health 200", 120)
        return self

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=timeout)
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        status, text, headers = self.request("POST", path, body, **more)
        return status, json.loads(text), headers

    def metrics(self):
        values = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name, **labels):
        total = 0.0
        for key, value in self.metrics().items():
            if key.split("{")[0] == name and all(f'{k}="{v}"' in key for k, v in labels.items()):
                total += value
        return total

    def idle(self):
        """Nobody runs or waits, and every block is free or only cached."""
        now = self.metrics()
        kinds = ("vllm:num_requests_running", "vllm:num_requests_waiting", "heddle:steps_in_flight")
        busy = sum(value for key, value in now.items() if key.split("{")[0] in kinds or ('state="held"' in key and key.startswith("heddle:kv_blocks{")))
        return busy == 0

    def until_idle(self):
        wait_for(self.idle, "an idle server")

    def memory(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def access_line(self, request_id):
        def find():
            # The log is read while it grows: a line that is not whole yet has no id.
            return next((line for line in list(self.lines) if line.endswith(f"id={request_id}\n")), None)

        return wait_for(find, f"the access line of {request_id}")

    def send(self, path, body, headers=()):
        """A request whose answer is left to the caller: an open socket."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(text)}", *headers]
        connection = socket.create_connection(("127.0.0.1", self.port()), timeout=60)
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
        return connection

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join()
        return code


@pytest.fixture(scope="session")
def server():
    running = Server("--served-model-name", "smollm2", "--max-model-len", "2048", "--kv-cache-memory-bytes", "512M")
    running.ready()
    yield running
    assert running.stop() == 0, running.log


@pytest.fixture
def start():
    """Servers of a test's own, stopped after it."""
    running = []

    def make(*arguments, **more):
        running.append(Server(*arguments, **more))
        return running[-1]

    yield make
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def stream_events(server, path, body, timeout=120):
    """The data of each event of a stream, as sent."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=timeout)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        text = reply.read()
    finally:
        connection.close()
    events = []
    for frame in text.decode("utf-8").split("\n\n"):
        if frame.startswith("data: "):
            events.append(frame[6:])
    return events


def open_stream(server, body, path="/v1/completions", headers=None):
    """The connection and the reply of a stream whose head has been read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=120)
    connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json", **(headers or {})})
    reply = connection.getresponse()
    return connection, reply


def together(calls):
    """The results of the calls, made at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def reset(connection):
    """Closes a socket with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
