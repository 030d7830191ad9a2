"""A client that goes away, at every stage of its request: nothing of it stays, and nobody else notices."""
import json
import pathlib
import socket

import pytest
from conftest import SANITISED, Server, reset, wait_for

TEXT = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}
SHORT = {"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


def still_answers(server):
    """One normal request adds exactly its own tokens: whatever was aborted computes no more."""
    server.until_idle()
    before = server.metric("vllm:generation_tokens_total")
    status, reply, _ = server.post(TEXT, SHORT)
    assert status == 200 and reply["usage"]["completion_tokens"] == 5
    server.until_idle()
    assert server.metric("vllm:generation_tokens_total") == before + 5
    assert server.get("/health")[0] == 200


@pytest.fixture(scope="module")
def narrow():
    """One request at a time, long prompts in many steps."""
    running = Server("--max-num-seqs", "1", "--max-num-batched-tokens", "32", "--max-model-len", "8192", "--kv-cache-memory-bytes", "512M").ready()
    yield running
    assert running.stop() == 0, running.log


@pytest.mark.parametrize("close", [socket.socket.close, reset])
def test_a_stream_whose_client_goes_away_gives_its_blocks_back(server, close):
    server.until_idle()
    before = server.metric("vllm:request_success_total", finished_reason="abort")
    connection = server.send(TEXT, {**LONG, "stream": True})
    text = b""
    while text.count(b"data: ") < 3:
        text += connection.recv(65536)
    assert server.metric("vllm:num_requests_running") == 1
    close(connection)
    server.until_idle()
    assert server.metric("vllm:request_success_total", finished_reason="abort") == before + 1
    still_answers(server)


@pytest.mark.parametrize("close", [socket.socket.close, reset])
def test_a_whole_reply_whose_client_goes_away_is_aborted(server, close):
    server.until_idle()
    connection = server.send(TEXT, LONG)
    wait_for(lambda: server.metric("vllm:num_requests_running") == 1, "a running request")
    close(connection)
    still_answers(server)


def test_half_a_close_lets_a_stream_go_on_and_ends_a_whole_reply(server):
    for streaming in (True, False):
        server.until_idle()
        connection = server.send(TEXT, {**LONG, "max_tokens": 40 if streaming else 1900, "stream": streaming})
        if streaming:
            text = connection.recv(10)
            assert text
        else:
            wait_for(lambda: server.metric("vllm:num_requests_running") == 1, "a running request")
        connection.shutdown(socket.SHUT_WR)
        if streaming:
            while piece := connection.recv(65536):
                text += piece
            assert b"[DONE]" in text
        server.until_idle()
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_while_it_waits_leaves_the_queue(narrow, stream):
    narrow.until_idle()
    running = narrow.send(TEXT, {**LONG, "stream": True})
    wait_for(lambda: narrow.metric("vllm:num_requests_running") == 1, "a running request")
    waiting = narrow.send(TEXT, {**LONG, "stream": stream})
    wait_for(lambda: narrow.metric("vllm:num_requests_waiting") == 1, "a waiting request")
    waiting.close()
    wait_for(lambda: narrow.metric("vllm:num_requests_waiting") == 0, "an empty queue")
    assert narrow.metric("vllm:num_requests_running") == 1
    running.close()
    still_answers(narrow)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_during_its_prompt_stops_it(narrow, stream):
    narrow.until_idle()
    before = narrow.metrics()
    seed = 100 if stream else 200  # another prompt each time: nothing of it is cached
    connection = narrow.send(TEXT, {**LONG, "prompt": [seed + i % 97 for i in range(6000)], "max_tokens": 100, "stream": stream})

    def in_the_prompt():
        held = narrow.metric("heddle:kv_blocks", state="held")
        return narrow.metric("vllm:num_requests_running") == 1 and held > 4

    wait_for(in_the_prompt, "a prompt under way")
    connection.close()
    narrow.until_idle()
    after = narrow.metrics()
    for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):  # no first token was ever there
        assert sum(v for k, v in after.items() if k.split("{")[0] == name) == sum(v for k, v in before.items() if k.split("{")[0] == name)
    still_answers(narrow)


def test_hundreds_of_clients_that_go_away_leave_nothing(server):
    server.until_idle()
    files_before = len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
    for i in range(60 if SANITISED else 500):
        connection = server.send(TEXT, {**LONG, "prompt": f"Story {i}", "stream": i % 2 == 0})
        if i % 6 == 0:
            assert connection.recv(1)  # this stream has begun
        (reset if i % 5 == 0 else socket.socket.close)(connection)
    still_answers(server)
    wait_for(lambda: len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())) <= files_before + 2, "closed sockets")
    assert json.loads(server.get("/v1/models")[1])["data"]
