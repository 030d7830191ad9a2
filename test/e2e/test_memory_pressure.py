"""A KV pool that is too small: what can never fit is refused, the rest is computed, and no text changes."""
import json
import threading
import time

import pytest
from conftest import SANITISED, Server, stream_events, together

TEXT = "/v1/completions"


class Watch:
    """Looks at the gauges all the time, and remembers the longest spell of waiting while nobody ran."""

    def __init__(self, server):
        self.server, self.longest, self._over = server, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        since = None
        while not self._over.is_set():
            now = self.server.metrics()
            of = lambda name: sum(v for k, v in now.items() if k.split("{")[0] == name)
            stuck = of("vllm:num_requests_waiting") > 0 and of("vllm:num_requests_running") == 0
            since = (since or time.monotonic()) if stuck else None
            if since:
                self.longest = max(self.longest, time.monotonic() - since)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.fixture(scope="module")
def small():
    """16 blocks: 256 tokens."""
    running = Server("--num-gpu-blocks-override", "16", "--max-model-len", "2048", "--max-num-seqs", "16").ready()
    yield running
    assert running.stop() == 0, running.log


def test_a_prompt_that_can_never_fit_is_refused_with_numbers_and_small_ones_run(small):
    with Watch(small) as watch:
        for stream in (False, True):
            status, reply, _ = small.post(TEXT, {"prompt": [5] * 300, "max_tokens": 1, "stream": stream})
            message = reply["error"]["message"]
            assert status == 400 and reply["error"]["param"] == "prompt"
            for number in ("300", "19", "16", "256"):  # tokens and blocks, needed and available
                assert number in message, message
        asks = [{"prompt": f"Number {i}: once upon a time there was", "max_tokens": 40, "temperature": 0, "ignore_eos": True} for i in range(10)]
        replies = together([lambda ask=ask: small.post(TEXT, ask) for ask in asks])
    for status, reply, _ in replies:
        assert status == 200, reply
        assert reply["usage"]["completion_tokens"] == 40 and reply["choices"][0]["finish_reason"] == "length"
    assert watch.longest < (10 if SANITISED else 1)


def test_an_output_that_outgrows_the_pool_ends_with_length(small):
    small.until_idle()
    preempted = small.metric("vllm:num_preemptions_total")
    with Watch(small) as watch:
        status, reply, _ = small.post(TEXT, {"prompt": [5] * 100, "max_tokens": 1000, "temperature": 0, "ignore_eos": True})
    assert status == 200 and reply["choices"][0]["finish_reason"] == "length"
    # 256 positions are computed; the token that the last of them gives is delivered too.
    assert reply["usage"]["completion_tokens"] == 256 - 100 + 1
    assert small.metric("vllm:num_preemptions_total") <= preempted + 1
    assert watch.longest < (10 if SANITISED else 1)


def variants():
    """24 requests: plain, with penalties, with stop strings (filled in by the test), and pairs of seeded samples."""
    for i in range(24):
        ask = {"prompt": f"{i}. In the town of Number{i} lived a miller who had {i + 2} sons, and every one of them wanted to become a", "max_tokens": 48,
               "temperature": 0, "ignore_eos": True}
        if i % 4 == 1:
            ask.update(frequency_penalty=0.5, presence_penalty=0.3, repetition_penalty=1.1)
        elif i % 4 == 3:
            ask.update(n=2, seed=i, temperature=0.9, top_p=0.95)
        yield ask


def by_choice(events):
    texts, finishes = {}, {}
    assert events[-1] == "[DONE]"
    usage = json.loads(events[-2])["usage"]
    for event in events[:-2]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"]:
                assert choice["index"] not in finishes
                finishes[choice["index"]] = choice["finish_reason"], choice["stop_reason"]
    return texts, finishes, usage


def test_preempted_streams_give_the_text_of_a_run_alone(server, start):
    tight = start("--num-gpu-blocks-override", "60", "--max-model-len", "2048", "--max-num-seqs", "24").ready()
    asks = list(variants())
    for i, ask in enumerate(asks):
        if i % 4 == 2:
            free = server.post(TEXT, ask)[1]["choices"][0]["text"]
            ask["stop"] = [free[90:96]]
    ask_stream = lambda where, ask: by_choice(stream_events(where, TEXT, {**ask, "stream_options": {"include_usage": True}}))
    alone = [ask_stream(server, ask) for ask in asks]
    with Watch(tight) as watch:
        crowded = together([lambda ask=ask: ask_stream(tight, ask) for ask in asks])
    assert tight.metric("vllm:num_preemptions_total") > 0
    for i, (one, other) in enumerate(zip(alone, crowded)):
        assert other == one, f"request {i}: {asks[i]}"
        if "stop" in asks[i]:
            assert one[1][0] == ("stop", asks[i]["stop"][0])
        else:
            assert one[2]["completion_tokens"] == 48 * asks[i].get("n", 1)
    assert watch.longest < (10 if SANITISED else 1)
    tight.until_idle()
    assert tight.metric("vllm:generation_tokens_total") == sum(one[2]["completion_tokens"] for one in alone)
    assert tight.stop() == 0, tight.log
