"""One bad request never takes the server, or another request, with it."""
import json
import socket

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def still_answers(server):
    status, body, _ = server.post(TEXT, {"prompt": "Hello", "max_tokens": 1, "temperature": 0})
    assert status == 200 and body["choices"][0]["text"]


@pytest.mark.parametrize("body", [
    b"", b"{:", b'{"prompt":"x",}', b"[]", b"{} {}", b"\xef\xbb\xbf{}", '{"prompt":"x"}'.encode("utf-16"), b'{"prompt":"\xb0\xa1"}',
    b'{"prompt":"\\ud800"}', b"[" * 100_000, b'{"prompt":"x","temperature":NaN}', b'{"prompt":"x","temperature":1e999}', b'{"prompt":"x","top_p":-Infinity}',
    b'{"prompt":"x","logit_bias":{"1":NaN}}',
])
def test_a_bad_body_is_a_400_with_json(server, body):
    status, text, _ = server.request("POST", TEXT, body, {"Content-Type": "application/json"})
    assert status == 400, text
    error = json.loads(text)["error"]
    assert error["code"] == 400 and error["message"] and error["type"] == "BadRequestError"
    still_answers(server)


@pytest.mark.parametrize("path,body,param", [
    (TEXT, {"prompt": [-1]}, "prompt[0]"), (TEXT, {"prompt": [[-1]]}, "prompt[0][0]"), (TEXT, {"prompt": [10**6]}, "prompt[0]"),
    (TEXT, {"prompt": [2**40]}, "prompt[0]"), (TEXT, {"prompt": [1.5]}, "prompt[0]"), (TEXT, {"prompt": []}, "prompt"), (TEXT, {"prompt": [[]]}, "prompt[0]"),
    (TEXT, {"prompt": ""}, "prompt"), (TEXT, {"prompt": {}}, "prompt"), (TEXT, {}, "prompt"),
    (TEXT, {"prompt": "x", "max_tokens": 0}, "max_tokens"), (TEXT, {"prompt": "x", "max_tokens": 10**12}, "max_tokens"),
    (TEXT, {"prompt": "x", "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
    (TEXT, {"prompt": "x", "n": 2, "temperature": 0}, "n"), (TEXT, {"prompt": "x", "stop": ""}, "stop"), (TEXT, {"prompt": "x", "logprobs": 1}, "logprobs"),
    (CHAT, {"messages": []}, "messages"), (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0].content[0].type"),
    (CHAT, {"messages": USER, "tools": [{"type": "function"}]}, "tools"), (CHAT, {"messages": USER, "response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"messages": USER, "stream_options": {"include_usage": True}}, "stream_options"),
])
def test_a_bad_field_is_named_twice_the_same(server, path, body, param):
    for _ in range(2):
        status, reply, _ = server.post(path, body)
        assert status == 400, reply
        assert reply["error"]["param"] == param
    if param != "stream_options":  # which is right with a stream
        status, reply, _ = server.post(path, {**body, "stream": True})
        assert status == 400 and reply["error"]["param"] == param  # before the stream begins
    still_answers(server)


def test_nothing_is_cut_at_a_nul(server):
    short = server.post("/tokenize", {"prompt": "a"})[1]["count"]
    assert server.post("/tokenize", {"prompt": "a\0 and much more text"})[1]["count"] > short + 3


def test_the_prompt_that_is_too_long_names_both_numbers(server):
    status, reply, _ = server.post(TEXT, {"prompt": [5] * 2048})
    assert status == 400 and "2048" in reply["error"]["message"]
    status, reply, _ = server.post(TEXT, {"prompt": [5] * 2047, "max_tokens": 1})
    assert status == 200
    status, reply, _ = server.post(TEXT, {"prompt": [5] * 2040, "max_tokens": 100, "ignore_eos": True, "temperature": 0})
    assert status == 200 and reply["usage"]["completion_tokens"] == 8 and reply["choices"][0]["finish_reason"] == "length"
    assert any("max_tokens" in w for w in reply["warnings"])


def test_unknown_fields_are_warned_of(server):
    _, reply, _ = server.post(TEXT, {"prompt": "x", "max_tokens": 1, "guided_json": {}, "zeal": 9})
    assert reply["warnings"] == ["unknown field `guided_json` was ignored", "unknown field `zeal` was ignored"]


@pytest.mark.parametrize("temperature", [0, 1e-30, 1e-8, 1e-4])
def test_tiny_temperatures_are_greedy(server, temperature):
    body = {"prompt": "The capital of France is", "max_tokens": 6}
    greedy = server.post(TEXT, {**body, "temperature": 0})[1]["choices"][0]["text"]
    assert server.post(TEXT, {**body, "temperature": temperature})[1]["choices"][0]["text"] == greedy


def test_http_details(server):
    assert server.request("HEAD", "/health")[0] == 200
    assert server.request("HEAD", "/v1/models")[1] == b""
    status, text, headers = server.get(CHAT)
    assert status == 405 and headers["Allow"] and json.loads(text)["error"]
    status, text, _ = server.get("/no/such/path")
    assert status == 404 and json.loads(text)["error"]["type"] == "NotFoundError"
    assert server.request("POST", TEXT, "prompt=x", {"Content-Type": "application/x-www-form-urlencoded"})[0] == 400


def test_chunked_bodies_and_pipelined_requests_are_served_in_order(server):
    body = b'{"prompt":"x","max_tokens":1}'
    chunked = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
               + b"%x\r\n%s\r\n0\r\nX-Trailer: y\r\n\r\n" % (len(body), body))
    with socket.create_connection(("127.0.0.1", server.port())) as connection:
        connection.settimeout(60)
        connection.sendall(chunked + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"text_completion") < answer.index(b'"version"')


def test_a_half_request_is_never_answered(server):
    with socket.create_connection(("127.0.0.1", server.port())) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(60)
        assert connection.recv(100) == b""
    still_answers(server)
