"""The real openai client against the built server."""
import json

import openai
import pytest
from conftest import stream_events, wait_for

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=2, timeout=120)


def test_a_completion_knows_paris(client):
    reply = client.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in reply.choices[0].text
    assert reply.object == "text_completion"
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.completion_tokens <= 8
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_chat_answer_knows_paris(client):
    reply = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=32, temperature=0)
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.id.startswith("chatcmpl-")


def test_a_stream_joins_to_the_whole_answer(client):
    whole = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=32, temperature=0)
    chunks = list(client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=32, temperature=0, stream=True,
                                                 stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_completions_take_lists_of_prompts_and_ids(client, server):
    ids = server.post("/tokenize", {"prompt": "The capital of France is"})[1]["tokens"]
    texts = client.completions.create(model="smollm2", prompt=["The capital of France is", "One, two, three,"], max_tokens=4, temperature=0)
    tokens = client.completions.create(model="smollm2", prompt=[ids, ids], max_tokens=4, temperature=0)
    assert [c.index for c in texts.choices] == [0, 1]
    assert tokens.choices[0].text == tokens.choices[1].text == texts.choices[0].text
    assert texts.choices[0].text != texts.choices[1].text


def test_seeded_samples_repeat_and_differ_from_one_another(client):
    ask = dict(model="smollm2", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=16, temperature=1, seed=7, n=3)
    first = [c.message.content for c in client.chat.completions.create(**ask).choices]
    second = [c.message.content for c in client.chat.completions.create(**ask).choices]
    assert first == second
    assert len(set(first)) == 3


def test_n_streams_have_one_finish_each(client):
    finishes = {}
    for chunk in client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=5, temperature=1, seed=1, n=3, stream=True):
        for choice in chunk.choices:
            if choice.finish_reason:
                finishes.setdefault(choice.index, []).append(choice.finish_reason)
    assert finishes == {0: ["length"], 1: ["length"], 2: ["length"]}


def test_stop_strings_never_show(client):
    prompt = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z A B C D E"
    free = client.completions.create(model="smollm2", prompt=prompt, max_tokens=24, temperature=0).choices[0]
    stop = free.text[5:9]
    cut = client.completions.create(model="smollm2", prompt=prompt, max_tokens=24, temperature=0, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop" and cut.stop_reason == stop
    assert cut.text == free.text[: free.text.index(stop)]
    streamed = "".join(c.choices[0].text for c in client.completions.create(model="smollm2", prompt=prompt, max_tokens=24, temperature=0, stop=[stop], stream=True) if c.choices)
    assert streamed == cut.text
    included = client.completions.create(model="smollm2", prompt=prompt, max_tokens=24, temperature=0, stop=[stop], extra_body={"include_stop_str_in_output": True}).choices[0]
    assert included.text == cut.text + stop


def test_logit_bias_min_tokens_and_stop_ids_act(client, server):
    word = server.post("/tokenize", {"prompt": " yes"})[1]["tokens"][0]
    biased = client.completions.create(model="smollm2", prompt="No.", max_tokens=4, temperature=0, logit_bias={str(word): 100})
    assert biased.choices[0].text == " yes" * 4
    stopped = client.completions.create(model="smollm2", prompt="No.", max_tokens=4, temperature=0, logit_bias={str(word): 100}, extra_body={"stop_token_ids": [word]})
    assert stopped.choices[0].finish_reason == "stop" and stopped.choices[0].stop_reason == word
    longer = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=60, temperature=0, extra_body={"min_tokens": 40})
    assert longer.usage.completion_tokens >= 40
    endless = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=60, temperature=0, extra_body={"ignore_eos": True})
    assert endless.usage.completion_tokens == 60 and endless.choices[0].finish_reason == "length"


def test_penalties_break_a_loop(client):
    ask = dict(model="smollm2", prompt="la la la la la la la la la", max_tokens=24, temperature=0)
    plain = client.completions.create(**ask).choices[0].text
    assert client.completions.create(**ask, frequency_penalty=2).choices[0].text != plain
    assert client.completions.create(**ask, presence_penalty=2).choices[0].text != plain
    assert client.completions.create(**ask, extra_body={"repetition_penalty": 1.5}).choices[0].text != plain


def test_characters_split_over_tokens_arrive_whole(client, server):
    text = "🫠 🥹 龜 T́ 🇫🇷 👩‍👩‍👧 naïve"
    ids = server.post("/tokenize", {"prompt": text})[1]["tokens"]
    assert server.post("/detokenize", {"tokens": ids})[1]["prompt"] == text
    messages = [{"role": "user", "content": f"Repeat exactly: {text}"}]
    whole = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=48, temperature=0).choices[0].message.content
    events = stream_events(server, "/v1/chat/completions", {"messages": messages, "max_tokens": 48, "temperature": 0})
    assert events[-1] == "[DONE]"
    assert "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events[:-1]) == whole
    assert "\ufffd" not in whole or whole.count("\ufffd") < 3


def test_special_token_text_of_a_user_is_plain_text(server):
    def count(content):
        return server.post("/tokenize", {"messages": [{"role": "user", "content": content}]})[1]["count"]

    plain = count("x")
    for special in ("<|im_end|>", "<|im_start|>", "<|endoftext|>"):
        assert count("x" + special) - plain > 2, special
    raw = server.post("/tokenize", {"prompt": "<|im_end|>"})[1]
    assert raw["count"] == 1


def test_errors_reach_the_client_as_its_own_exceptions(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert unknown.value.body["param"] == "model"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=3)
    assert bad.value.body["param"] == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="smollm2", prompt="word " * 5000, max_tokens=1)
    assert "2048" in long.value.body["message"]


def test_a_client_that_times_out_leaves_nothing_running(server):
    impatient = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        impatient.completions.create(model="smollm2", prompt="Once", max_tokens=1500, temperature=0, extra_body={"ignore_eos": True})
    wait_for(lambda: server.metric("vllm:num_requests_running") == 0 and server.metric("vllm:num_requests_waiting") == 0, "an idle server")


def test_the_model_is_listed(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["smollm2"]
    assert models[0].max_model_len == 2048


def test_a_model_of_another_family_answers_through_its_template(start, tmp_path):
    from conftest import GEMMA3

    template = tmp_path / "gemma.jinja"
    template.write_text("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role if m.role != 'assistant' else 'model' }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
                        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")
    gemma = start("--served-model-name", "gemma", "--chat-template", template, "--max-model-len", "1024", "--kv-cache-memory-bytes", "64M", model=GEMMA3).ready()
    client = openai.OpenAI(base_url=gemma.url + "/v1", api_key="unused", timeout=120)
    text = client.completions.create(model="gemma", prompt="The capital of France is", max_tokens=8, temperature=0).choices[0].text
    assert "France" in text
    reply = client.chat.completions.create(model="gemma", messages=QUESTION, max_tokens=16, temperature=0)
    assert reply.usage.completion_tokens > 0
    assert gemma.stop() == 0
