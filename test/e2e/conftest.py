"""A built server for the tests: started on a free loopback port, awaited by condition, stopped at the end."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("HEDDLE_BUILD", "release")
PROGRAM = ROOT / "build" / BUILD / "heddle"
SMOLLM2 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = ROOT / "models" / "gemma-3-270m-q4_k_m.gguf"
SANITISED = BUILD != "release"
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
