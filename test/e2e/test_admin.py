"""The operator's endpoints."""
import json
import threading

import pytest
from conftest import SANITISED, Server, open_stream, wait_for

TEXT = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}
STORY = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def admin():
    running = Server("--enable-admin-endpoints", "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M").ready()
    yield running
    assert running.stop() == 0, running.log


def do(server, path, method="POST", body=None):
    status, text, _ = server.request(method, path, body)
    return status, json.loads(text)


class Later:
    """A request in the background, whose answer is asked for later."""

    def __init__(self, server, body):
        self.answer = None
        self._thread = threading.Thread(target=lambda: setattr(self, "answer", server.post(TEXT, body)))
        self._thread.start()

    def get(self):
        self._thread.join()
        return self.answer


def running(server, n=1):
    wait_for(lambda: server.metric("vllm:num_requests_running") == n, f"{n} running")


def waiting(server, n=1):
    wait_for(lambda: server.metric("vllm:num_requests_waiting") == n, f"{n} waiting")


def test_without_the_flag_there_are_no_admin_endpoints(server):
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("GET", "/is_paused"), ("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping"),
                         ("POST", "/reset_prefix_cache"), ("POST", "/abort_requests")):
        assert server.request(method, path)[0] == 404, path


def test_with_a_key_they_need_it(start):
    server = start("--enable-admin-endpoints", "--api-key", "secret").ready()
    assert server.request("POST", "/pause")[0] == 401
    assert server.request("GET", "/is_sleeping")[0] == 401
    assert server.request("POST", "/abort_requests", headers={"Authorization": "Bearer secret"})[0] == 200
    assert server.stop() == 0


@pytest.mark.parametrize("path,word", [("/pause?mode=stop", "mode"), ("/pause?clear_cache=x", "clear_cache"), ("/pause?zeal=1", "zeal"), ("/sleep?level=3", "level"),
                                       ("/sleep?level=x", "level"), ("/sleep?mode=x", "mode"), ("/wake_up?tags=x", "tags"), ("/reset_prefix_cache?reset_running_requests=x", "reset_running_requests"),
                                       ("/resume?x=1", "x")])
def test_a_bad_value_is_a_400_that_names_the_parameter(admin, path, word):
    status, reply = do(admin, path)
    assert status == 400 and word in reply["error"]
    assert do(admin, "/is_paused", "GET") == (200, {"is_paused": False})


def test_pause_keep_lets_everything_stand_still_and_resume_goes_on(admin):
    alone = admin.post(TEXT, {**STORY, "max_tokens": 250})[1]["choices"][0]["text"]
    begun = Later(admin, {**STORY, "max_tokens": 250})
    running(admin)
    assert do(admin, "/pause?mode=keep&clear_cache=false") == (200, {"status": "paused"})
    assert do(admin, "/is_paused", "GET") == (200, {"is_paused": True})
    assert do(admin, "/is_sleeping", "GET") == (200, {"is_sleeping": True})
    assert admin.metric("heddle:steps_in_flight") == 0
    tokens = admin.metric("vllm:generation_tokens_total")
    queued = Later(admin, STORY)
    waiting(admin)
    assert admin.get("/health")[0] == 200
    assert admin.metric("vllm:generation_tokens_total") == tokens and begun.answer is None
    assert do(admin, "/resume") == (200, {"status": "resumed"})
    assert begun.get()[1]["choices"][0]["text"] == alone
    assert queued.get()[0] == 200
    assert do(admin, "/is_paused", "GET") == (200, {"is_paused": False})


def test_pause_wait_finishes_what_has_begun(admin):
    begun = Later(admin, {**STORY, "max_tokens": 200})
    running(admin)
    assert do(admin, "/pause?mode=wait") == (200, {"status": "paused"})
    status, reply, _ = begun.get()
    assert status == 200 and reply["usage"]["completion_tokens"] == 200
    queued = Later(admin, STORY)
    waiting(admin)
    do(admin, "/resume")
    assert queued.get()[0] == 200


def test_pause_abort_ends_what_is_there(admin):
    connection, reply = open_stream(admin, LONG)
    running(admin)
    assert do(admin, "/pause") == (200, {"status": "paused"})
    text = reply.read().decode()
    connection.close()
    assert '"finish_reason":"abort"' in text and text.rstrip().endswith("data: [DONE]")
    assert admin.metric("vllm:num_requests_running") == 0 and admin.metric("heddle:kv_blocks", state="held") == 0
    assert admin.metric("heddle:kv_blocks", state="cached") == 0  # clear_cache is the default
    do(admin, "/resume")
    assert admin.post(TEXT, STORY)[0] == 200


@pytest.mark.parametrize("level", [0, 1, 2])
def test_sleep_and_wake_give_the_same_text(admin, level):
    before = admin.post(TEXT, STORY)[1]["choices"][0]["text"]
    awake = admin.memory()
    assert do(admin, f"/sleep?level={level}") == (200, {"status": "sleeping", "level": level})
    assert do(admin, "/is_sleeping", "GET") == (200, {"is_sleeping": True})
    if level > 0:
        assert SANITISED or admin.memory() < awake - 50 * 2**20  # the weights are 94 MiB
        status, reply = do(admin, "/resume")
        assert status == 400 and "wake_up" in reply["error"]
    state = {0: None, 1: "weights_offloaded", 2: "discard_all"}[level]
    for name in ("awake", "weights_offloaded", "discard_all"):
        assert admin.metric("vllm:engine_sleep_state", sleep_state=name) == (name == state), name
    queued = Later(admin, STORY)
    waiting(admin)
    assert admin.get("/health")[0] == 200
    assert do(admin, "/wake_up") == (200, {"status": "awake", "tags": None})
    assert queued.get()[1]["choices"][0]["text"] == before
    assert do(admin, "/is_sleeping", "GET") == (200, {"is_sleeping": False})
    assert admin.metric("vllm:engine_sleep_state", sleep_state="awake") == 1
    assert admin.post(TEXT, STORY)[1]["choices"][0]["text"] == before


def test_waking_in_parts_ends_when_all_of_it_is_there(admin):
    assert do(admin, "/sleep")[1] == {"status": "sleeping", "level": 1}
    assert do(admin, "/wake_up?tags=weights") == (200, {"status": "sleeping", "tags": ["weights"]})
    assert do(admin, "/is_sleeping", "GET")[1] == {"is_sleeping": True}
    status, reply = do(admin, "/wake_up?tags=kv_cache&tags=scheduling")
    assert status == 200 and reply == {"status": "awake", "tags": ["kv_cache", "scheduling"]}
    assert admin.post(TEXT, STORY)[0] == 200


def test_an_operation_goes_on_when_its_client_does_not_wait(admin):
    begun = Later(admin, {**STORY, "max_tokens": 300})
    running(admin)
    admin.send("/pause?mode=wait", b"").close()
    assert begun.get()[0] == 200
    wait_for(lambda: do(admin, "/is_paused", "GET")[1]["is_paused"], "the pause")
    assert do(admin, "/resume")[0] == 200
    assert admin.post(TEXT, STORY)[0] == 200


def test_reset_prefix_cache_fails_while_blocks_are_held_unless_they_may_be_reset(admin):
    admin.until_idle()
    assert admin.metric("heddle:kv_blocks", state="cached") >= 0
    alone = admin.post(TEXT, {**STORY, "max_tokens": 250})[1]["choices"][0]["text"]
    begun = Later(admin, {**STORY, "max_tokens": 250})
    running(admin)
    assert do(admin, "/reset_prefix_cache") == (200, {"success": False})
    assert do(admin, "/reset_prefix_cache?reset_running_requests=true") == (200, {"success": True})
    assert begun.get()[1]["choices"][0]["text"] == alone
    admin.until_idle()
    assert admin.metric("heddle:kv_blocks", state="cached") > 0
    assert do(admin, "/reset_prefix_cache") == (200, {"success": True})
    assert admin.metric("heddle:kv_blocks", state="cached") == 0


def test_abort_requests_by_the_ids_that_clients_saw(admin):
    admin.until_idle()
    names = ["one", "one-more", "other"]
    streams = [open_stream(admin, LONG, headers={"X-Request-Id": name}) for name in names]
    ids = []
    for _, reply in streams:
        event = reply.readline()
        ids.append(json.loads(event[6:])["id"])
    assert ids == ["cmpl-one", "cmpl-one-more", "cmpl-other"]
    assert do(admin, "/abort_requests", body={"request_ids": ["cmpl-one", "cmpl", "nobody"]}) == (200, {"status": "aborted", "aborted": 1})
    text = streams[0][1].read().decode()
    assert '"finish_reason":"abort"' in text and "[DONE]" in text
    running(admin, 2)
    assert do(admin, "/abort_requests", body={"request_ids": []}) == (200, {"status": "aborted", "aborted": 2})
    for connection, reply in streams:
        reply.read()
        connection.close()
    admin.until_idle()
    assert do(admin, "/abort_requests") == (200, {"status": "aborted", "aborted": 0})
    status, reply = do(admin, "/abort_requests", body={"request_ids": "cmpl-one"})
    assert status == 400 and "request_ids" in reply["error"]


def test_a_signal_ends_a_server_that_sleeps_or_is_paused(start):
    for path in ("/sleep?level=1", "/pause?mode=keep"):
        server = start("--enable-admin-endpoints").ready()
        assert do(server, path)[0] == 200
        queued = Later(server, STORY)
        waiting(server)
        assert server.stop() == 0, server.log
        assert queued.get()[0] in (200, 503)
