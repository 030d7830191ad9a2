"""Who is let in, who goes first, and until when an answer is worth something."""
import json

import pytest
from conftest import SANITISED, Server, open_stream, together, wait_for

TEXT = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}
SHORT = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
SIZE = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "512M"]


def module_server(*arguments):
    @pytest.fixture(scope="module")
    def running():
        one = Server(*SIZE, *arguments).ready()
        yield one
        assert one.stop() == 0, one.log

    return running


capped = module_server("--max-num-queued-reqs", 8, "--max-num-seqs", 4)
priority = module_server("--scheduling-policy", "priority", "--max-num-seqs", 1)
fair = module_server("--scheduling-policy", "fair", "--max-num-seqs", 2)


def head(server, body, headers=None):
    """Status, Retry-After and connection of a stream, as soon as its head is there."""
    connection, reply = open_stream(server, body, headers=headers)
    return reply.status, reply.headers["Retry-After"], connection


def refusals(server):
    return server.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs")


def filled(server, n=8):
    server.until_idle()
    connections = [head(server, LONG) for _ in range(n)]
    assert [status for status, _, _ in connections] == [200] * n
    return [connection for _, _, connection in connections]


def test_what_is_over_the_cap_is_refused_at_once_and_counted(capped):
    capped.until_idle()
    before = refusals(capped)
    results = together([lambda i=i: head(capped, LONG, {"X-Request-Id": f"burst-{i}"}) for i in range(28)])
    statuses = [status for status, _, _ in results]
    assert statuses.count(200) == 8 and statuses.count(503) == 20
    times = []
    for i, (status, retry_after, connection) in enumerate(results):
        connection.close()
        if status == 503:
            assert 1 <= int(retry_after) <= 600
            times.append(float(capped.access_line(f"burst-{i}").split(" 503 ")[1].split(" ms")[0]))
    assert SANITISED or sorted(times)[10] < 50, times
    assert refusals(capped) == before + 20
    capped.until_idle()
    assert capped.post(TEXT, SHORT)[0] == 200


def test_n_choices_count_n_times(capped):
    ask = {**LONG, "temperature": 1, "seed": 1}
    connections = filled(capped, 3)
    for n, expected in ((3, 200), (3, 503), (2, 200), (1, 503)):
        status, _, connection = head(capped, {**ask, "n": n})
        assert status == expected, n
        connections.append(connection)
    # A list of prompts is let in as a whole or not at all.
    connections.pop(0).close()
    wait_for(lambda: capped.metric("vllm:num_requests_running") + capped.metric("vllm:num_requests_waiting") == 7, "one place")
    status, reply, _ = capped.post(TEXT, {**SHORT, "prompt": ["a", "b"]})
    assert status == 503 and "--max-num-queued-reqs" in reply["error"]["message"]
    assert capped.metric("vllm:num_requests_running") + capped.metric("vllm:num_requests_waiting") == 7
    for connection in connections:
        connection.close()


def test_clients_that_go_away_at_the_cap_cost_no_place(capped):
    connections = filled(capped, 7)
    for i in range(60 if SANITISED else 500):
        capped.send(TEXT, {**LONG, "stream": i % 2 == 0}).close()
    for connection in connections:
        connection.close()
    capped.until_idle()
    assert capped.post(TEXT, SHORT)[0] == 200
    connections = filled(capped)  # as many as ever
    assert head(capped, LONG)[0] == 503
    for connection in connections:
        connection.close()


def test_the_limit_of_queued_tokens_and_the_status_by_flag(start):
    server = start(*SIZE, "--max-num-queued-tokens", 100, "--queue-full-status", 429).ready()
    status, reply, headers = server.post(TEXT, {"prompt": [5] * 101, "max_tokens": 1})
    assert status == 429 and int(headers["Retry-After"]) >= 1
    assert reply["error"]["code"] == 429 and "--max-num-queued-tokens" in reply["error"]["message"]
    assert server.post(TEXT, {"prompt": [5] * 100, "max_tokens": 1})[0] == 200
    assert server.metric("vllm:admission_rejections_total", reason="max_num_queued_tokens") == 1
    assert server.stop() == 0


def test_a_smaller_priority_number_goes_first_and_the_header_wins(priority):
    priority.until_idle()
    _, _, blocker = head(priority, LONG)
    wait_for(lambda: priority.metric("vllm:num_requests_running") == 1, "a running request")
    asks = [("late", {"priority": 5}, {}), ("middle", {"priority": 0}, {}), ("first", {"priority": 9}, {"X-Vllm-Priority": "-3"}), ("last", {"priority": 5}, {})]
    connections = []
    for i, (name, body, headers) in enumerate(asks):
        connections.append(open_stream(priority, {**SHORT, **body}, headers={**headers, "X-Request-Id": name}))
        wait_for(lambda i=i: priority.metric("vllm:num_requests_waiting") == i + 1, "a waiting request")
    blocker.close()
    for connection, reply in connections:
        assert b"[DONE]" in reply.read()
        connection.close()
    lines = {name: priority.access_line(name) for name, _, _ in asks}
    order = sorted(lines, key=lambda name: priority.lines.index(lines[name]))
    assert order == ["first", "middle", "late", "last"]
    assert "priority=-3 tenant=- deadline=- first_token_deadline=-" in lines["first"] and "preemptions=0" in lines["first"]


def test_a_priority_without_the_policy_is_warned_of(server):
    reply = server.post(TEXT, {**SHORT, "priority": 2})[1]
    assert any("priority 2" in warning for warning in reply["warnings"])
    assert "warnings" not in server.post(TEXT, {**SHORT, "priority": 0})[1]
    status, reply, _ = server.post(TEXT, SHORT, headers={"X-Vllm-Priority": "soon"})
    assert status == 400 and reply["error"]["param"] == "X-Vllm-Priority"


def test_a_tenant_with_many_requests_does_not_starve_another(fair):
    fair.until_idle()
    finished = fair.metric("vllm:request_success_total")
    flood = [fair.send(TEXT, {**LONG, "prompt": f"Flood {i}", "max_tokens": 400, "user": "flood", "stream": True}) for i in range(30)]
    wait_for(lambda: fair.metric("vllm:num_requests_running") == 2 and fair.metric("vllm:num_requests_waiting") == 28, "a full queue")
    status, reply, _ = fair.post(TEXT, {**SHORT, "user": "quiet"}, headers={"X-Request-Id": "quiet"})
    assert status == 200 and reply["usage"]["completion_tokens"] == 2
    # By arrival, 28 answers of 400 tokens would have come first.
    assert fair.metric("vllm:request_success_total") - finished <= 1 + 4
    assert "tenant=quiet" in fair.access_line("quiet")
    for connection in flood:
        connection.close()


def test_a_tenant_is_a_key_and_no_key_is_ever_logged(start):
    server = start(*SIZE, "--api-key", "sesame-one", "--api-key", "sesame-two", "--scheduling-policy", "fair", "--tenant-weight", "key2=3").ready()
    for i, key in enumerate(("sesame-one", "sesame-two")):
        server.post(TEXT, {**SHORT, "user": "somebody"}, headers={"Authorization": f"Bearer {key}", "X-Request-Id": f"by-{i}"})
        assert f"tenant=key{i + 1} " in server.access_line(f"by-{i}")
    assert server.post(TEXT, SHORT, headers={"Authorization": "Bearer sesame-three"})[0] == 401
    assert server.stop() == 0
    assert "sesame" not in server.log


@pytest.mark.parametrize("body,headers", [({"timeout_ms": 150}, {}), ({}, {"X-Request-Timeout-Ms": "150"}), ({"first_token_timeout_ms": 150}, {}),
                                          ({"first_token_timeout_ms": 60000}, {"X-First-Token-Timeout-Ms": "150"})])
def test_a_deadline_in_the_queue_is_503(priority, body, headers):
    priority.until_idle()
    _, _, blocker = head(priority, LONG)
    wait_for(lambda: priority.metric("vllm:num_requests_running") == 1, "a running request")
    status, reply, _ = priority.post(TEXT, {**SHORT, **body}, headers={**headers, "X-Request-Id": f"late-{sorted(body)}-{len(headers)}".replace(" ", "")})
    assert status == 503 and reply["error"]["code"] == "deadline_exceeded"
    blocker.close()
    priority.until_idle()
    assert priority.post(TEXT, {**SHORT, **{key: 60000 for key in body}})[0] == 200


def test_a_deadline_while_it_runs_is_504_or_an_error_event(server):
    server.until_idle()
    before = server.metric("vllm:request_success_total", finished_reason="abort")
    status, reply, _ = server.post(TEXT, {**LONG, "timeout_ms": 300}, headers={"X-Request-Id": "too-slow"})
    assert status == 504 and reply["error"]["code"] == "deadline_exceeded"
    line = server.access_line("too-slow")
    assert "deadline=300 " in line and "finish=abort" in line
    connection, stream = open_stream(server, {**LONG, "timeout_ms": 300, "stream_options": {"include_usage": True}})
    events = [event[6:] for event in stream.read().decode().split("\n\n") if event.startswith("data: ")]
    connection.close()
    assert stream.status == 200 and events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["code"] == "deadline_exceeded"
    assert all(not choice["finish_reason"] for event in events[:-2] for choice in json.loads(event)["choices"])
    assert len(events) > 2  # some text had come
    server.until_idle()
    assert server.metric("vllm:request_success_total", finished_reason="abort") == before + 2


def test_a_bad_time_or_rank_is_a_400_that_names_it(server):
    for name, value in (("X-Request-Timeout-Ms", "0"), ("X-Request-Timeout-Ms", "1s"), ("X-First-Token-Timeout-Ms", "-1"), ("X-data-parallel-rank", "1"), ("X-data-parallel-rank", "-1")):
        status, reply, _ = server.post(TEXT, SHORT, headers={name: value})
        assert status == 400 and reply["error"]["param"] == name, name
    for name in ("timeout_ms", "first_token_timeout_ms"):
        for value in (0, -1, 1.5, "5"):
            status, reply, _ = server.post(TEXT, {**SHORT, name: value})
            assert status == 400 and reply["error"]["param"] == name
    assert server.post(TEXT, SHORT, headers={"X-data-parallel-rank": "first"})[0] == 200
