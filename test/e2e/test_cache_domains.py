"""Whose prefix may be reused by whom."""
import re

TEXT = "/v1/completions"


def test_a_prefix_hits_inside_its_domain_and_misses_across(server):
    ask = {"prompt": [(i * 7) % 1000 + 10 for i in range(500)], "max_tokens": 2, "temperature": 0}

    def cached(name, **more):
        status, reply, _ = server.post(TEXT, {**ask, **more}, headers={"X-Request-Id": f"salt-{name}"})
        assert status == 200 and reply["usage"]["prompt_tokens"] == 500
        texts.add(reply["choices"][0]["text"])
        return int(re.search(r" cached=(\d+) ", server.access_line(f"salt-{name}")).group(1))

    texts = set()
    whole = 496  # full blocks of 499 tokens: the last token is always computed
    assert cached("none") == 0
    assert cached("a", cache_salt="a") == 0
    assert cached("b", cache_salt="b") == 0
    assert cached("a-again", cache_salt="a") == whole
    assert cached("none-again") == whole
    assert cached("null", cache_salt=None) == whole
    assert cached("b-again", cache_salt="b") == whole
    assert cached("fingerprint", cache_salt="smollm2") == 0  # a salt that is the model's own name is no other domain's
    assert len(texts) == 1


def test_a_salt_that_is_none_is_a_400(server):
    for salt in ("", 5, True, ["a"], {}, "x" * 129, "x" * (1 << 20), "a@b", "a/b", "a\\b", "a\0b"):
        status, reply, _ = server.post(TEXT, {"prompt": "x", "max_tokens": 1, "cache_salt": salt})
        assert status == 400 and reply["error"]["param"] == "cache_salt", repr(salt)[:40]
    assert server.post(TEXT, {"prompt": "x", "max_tokens": 1, "cache_salt": "x" * 128})[0] == 200
