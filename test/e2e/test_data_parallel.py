"""Several engines in one process."""
import pytest
from conftest import Server, open_stream, together, wait_for

TEXT = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}
SHORT = {"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def double():
    running = Server("--data-parallel-size", 2, "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M", "--max-num-queued-reqs", 6).ready()
    yield running
    assert running.stop() == 0, running.log


def tokens(server):
    return [server.metric("vllm:generation_tokens_total", engine=str(rank)) for rank in range(2)]


def test_a_request_goes_to_the_engine_that_its_header_names(double, server):
    text = server.post(TEXT, SHORT)[1]["choices"][0]["text"]
    for rank in (0, 1, 1):
        before = tokens(double)
        status, reply, _ = double.post(TEXT, SHORT, headers={"X-data-parallel-rank": str(rank)})
        assert status == 200 and reply["choices"][0]["text"] == text
        before[rank] += 5
        assert tokens(double) == before
    status, reply, _ = double.post(TEXT, SHORT, headers={"X-data-parallel-rank": "2"})
    assert status == 400 and reply["error"]["param"] == "X-data-parallel-rank"


def test_requests_are_spread_over_the_engines(double):
    double.until_idle()
    streams = [open_stream(double, {**LONG, "prompt": f"Different {i * 37}"}) for i in range(4)]
    wait_for(lambda: [double.metric("vllm:num_requests_running", engine=str(rank)) for rank in range(2)] == [2, 2], "two running on each")
    # The limit of the queue holds over both.
    more = [open_stream(double, LONG) for _ in range(3)]
    assert [reply.status for _, reply in more] == [200, 200, 503]
    for connection, _ in streams + more:
        connection.close()
    double.until_idle()


def test_a_repeated_prompt_goes_where_its_prefix_is(double):
    double.until_idle()
    ask = {**SHORT, "prompt": [11 + i % 50 for i in range(400)]}
    double.post(TEXT, ask, headers={"X-data-parallel-rank": "1"})
    for _ in range(3):
        before = tokens(double)
        double.post(TEXT, ask)
        assert tokens(double) == [before[0], before[1] + 5]
    assert double.metric("vllm:prefix_cache_hits_total", engine="1") >= 3 * 384


def test_many_at_once_give_the_texts_of_one_engine(double, server):
    asks = [{**SHORT, "prompt": f"{i} and {i + 1} make", "max_tokens": 20} for i in range(6)]
    alone = [server.post(TEXT, ask)[1]["choices"][0]["text"] for ask in asks]
    assert [reply["choices"][0]["text"] for _, reply, _ in together([lambda ask=ask: double.post(TEXT, ask) for ask in asks])] == alone
