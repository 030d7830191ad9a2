"""From exec to exit: the port, the phases, signals, keys."""
import json
import signal
import socket
import subprocess
import time

import pytest
from conftest import PROGRAM, ROOT, SANITISED, SMOLLM2, open_stream, wait_for

TEXT = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}


def run(*arguments, **more):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=ROOT, **more)


def test_health_is_503_with_a_phase_until_it_is_200(start):
    server = start()
    seen = []

    def poll():
        status, body, _ = server.get("/health")
        seen.append((status, body))
        return status == 200

    wait_for(poll, "health 200", 120)
    for status, body in seen[:-1]:
        assert status == 503 and json.loads(body)["status"] == "loading" and json.loads(body)["phase"]
    assert server.post(TEXT, {"prompt": "x", "max_tokens": 1})[0] == 200
    assert server.stop() == 0
    for word in ("memory plan", "listening on", "sampling defaults", "thread"):
        assert word in server.log


def test_each_request_has_one_access_line(start):
    server = start().ready()
    server.post(TEXT, {"prompt": "x", "max_tokens": 2, "ignore_eos": True}, headers={"X-Request-Id": "my-id-7"})
    wait_for(lambda: "my-id-7" in server.log, "the access line")
    line = next(line for line in server.lines if "my-id-7" in line)
    assert "POST /v1/completions 200" in line and "generated=2" in line and "finish=length" in line
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_second_and_streams_are_closed(start, number):
    server = start().ready()
    streams = [open_stream(server, LONG) for _ in range(3)]
    idle_connection = socket.create_connection(("127.0.0.1", server.port()))
    for _, reply in streams:
        reply.readline()
    begin = time.monotonic()
    assert server.stop(number) == 0
    assert SANITISED or time.monotonic() - begin < 1.0
    for connection, reply in streams:
        text = reply.read().decode()
        assert text.rstrip().endswith("data: [DONE]")
        assert '"finish_reason":"abort"' in text
        connection.close()
    idle_connection.close()


def test_a_second_signal_ends_it_at_once(start):
    server = start("--shutdown-timeout", "60").ready()
    connection, reply = open_stream(server, LONG)
    reply.readline()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopping" in server.log, "the stop")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5) == 128 + signal.SIGTERM
    connection.close()


def test_a_taken_port_is_one_clear_line(server):
    done = run("serve", SMOLLM2, "--port", server.port(), "--log-level", "error")
    assert done.returncode == 1
    assert str(server.port()) in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments,words", [
    (["serve", "/no/such/file.gguf"], ["/no/such/file.gguf"]),
    (["serve", "README.md"], ["README.md"]),
    (["serve"], ["model"]),
    (["serve", SMOLLM2, "--port", "70000"], ["port"]),
    (["serve", SMOLLM2, "--max-model-len", "9000"], ["--max-model-len", "8192"]),
    (["serve", SMOLLM2, "--block-size", "17"], ["--block-size"]),
    (["serve", SMOLLM2, "--kv-cache-memory-bytes", "100000G"], ["--kv-cache-memory-bytes"]),
    (["serve", SMOLLM2, "--kv-cache-memory-bytes", "1M", "--max-model-len", "8192"], ["--max-model-len"]),
    (["serve", SMOLLM2, "--compute", "f64"], ["compute"]),
    (["serve", SMOLLM2, "--scheduling-policy", "lifo"], ["--scheduling-policy"]),
    (["serve", SMOLLM2, "--tenant-weight", "key1=0"], ["--tenant-weight", "key1"]),
    (["serve", SMOLLM2, "--watermark", "1"], ["--watermark"]),
    (["serve", SMOLLM2, "--pipeline-depth", "9"], ["--pipeline-depth"]),
    (["serve", SMOLLM2, "--data-parallel-size", "17"], ["--data-parallel-size"]),
    (["serve", SMOLLM2, "--queue-full-status", "418"], ["--queue-full-status"]),
    (["serve", SMOLLM2, "--max-long-partial-prefills", "2"], ["--max-long-partial-prefills", "--long-prefill-token-threshold"]),
    (["serve", SMOLLM2, "--max-num-batched-tokens", "64"], ["--max-num-batched-tokens", "--max-num-seqs"]),
    (["serve", SMOLLM2, "--no-enable-chunked-prefill"], ["--max-num-batched-tokens"]),
    (["serve", SMOLLM2, "--log-level", "loud"], ["log-level"]),
    (["serve", SMOLLM2, "--no-such-flag"], ["no-such-flag"]),
    (["serve", SMOLLM2, "--config", "/no/such.toml"], ["/no/such.toml"]),
    (["serve", SMOLLM2, "--chat-template", "/no/such.jinja"], ["--chat-template"]),
    (["frobnicate"], ["frobnicate"]),
])
def test_a_bad_flag_is_one_line_and_exit_code_1(arguments, words):
    done = run(*arguments, "--log-level", "error") if arguments[0] == "serve" and "--log-level" not in arguments else run(*arguments)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


def test_help_is_grouped_and_has_defaults():
    text = run("serve", "--help").stdout
    for word in ("Model:", "Scheduler and KV cache:", "Server:", "--max-num-batched-tokens", "2048", "--port", "8000", "--dry-run"):
        assert word in text
    assert run("--version").stdout.startswith("heddle ")


def test_a_dry_run_prints_the_plan_and_loads_nothing():
    done = run("serve", SMOLLM2, "--dry-run", "--max_num_seqs", "8", "--max-model-len", "2K")
    assert done.returncode == 0
    assert "memory plan" in done.stderr and "max-num-seqs x max-model-len" in done.stderr and "2048 tokens" in done.stderr


def test_the_configuration_file_fills_what_flags_leave_open(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('max-model-len = 1024\nblock_size = 32\nserved-model-name = ["a", "b"]\n')
    done = run("serve", SMOLLM2, "--dry-run", "--config", file, "--block-size", "16")
    assert done.returncode == 0, done.stderr
    assert "longest sequence 1024" in done.stderr and "blocks of 16" in done.stderr
    file.write_text("no-such-key = 1\n")
    done = run("serve", SMOLLM2, "--dry-run", "--config", file)
    assert done.returncode == 1 and "no-such-key" in done.stderr and "line 1" in done.stderr
    sample = run("serve", SMOLLM2, "--dry-run", "--config", ROOT / "conf" / "heddle.toml")
    assert sample.returncode == 0, sample.stderr


def test_keys_and_origins(start):
    server = start("--api-key", "secret", "--api-key", "other", "--allowed-origins", "http://ui.example").ready()
    body = {"prompt": "x", "max_tokens": 1}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"X-Api-Key": "secret"}):
        status, reply, got = server.post(TEXT, body, headers=headers)
        assert status == 401 and reply["error"] and got["WWW-Authenticate"]
    for path in ("/v1/models", "//v1/models", "/v1/models/", "/v1/%6dodels", "/tokenize", "/v1/models?api_key=secret"):
        assert server.get(path)[0] == 401, path
    for key in ("secret", "other"):
        assert server.post(TEXT, body, headers={"Authorization": f"Bearer {key}"})[0] == 200
    for path in ("/health", "/metrics", "/version", "/ping"):
        assert server.get(path)[0] == 200
    preflight = {"Origin": "http://ui.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    status, _, got = server.request("OPTIONS", TEXT, headers=preflight)
    assert status == 204 and got["Access-Control-Allow-Origin"] == "http://ui.example"
    status, _, got = server.post(TEXT, body, headers={"Origin": "http://ui.example"})
    assert status == 401 and got["Access-Control-Allow-Origin"] == "http://ui.example"
    status, _, got = server.request("GET", "/health", headers={"Origin": "http://evil.example"})
    assert "Access-Control-Allow-Origin" not in got
    server.stop()


def test_the_metrics_text_parses_and_adds_up(server):
    before = server.metrics()
    server.post(TEXT, {"prompt": "Hello there", "max_tokens": 5, "ignore_eos": True, "temperature": 0})
    text = server.get("/metrics")[1].decode()
    assert server.get("/metrics")[2]["Content-Type"].startswith("text/plain; version=0.0.4")
    after = server.metrics()
    key = 'vllm:generation_tokens_total{engine="0",model_name="smollm2"}'
    assert after[key] == before[key] + 5
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert "nan" not in text.lower().replace("tenant", "")
    assert server.metric("heddle:requests_submitted_total") == server.metric("vllm:request_success_total") + server.metric("heddle:requests_rejected_total") + server.metric(
        "vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"):
        assert f'{name}{{engine="0",model_name="smollm2"}}' in after
    assert any(key.startswith("vllm:cache_config_info") and 'block_size="16"' in key for key in after)


def test_a_repeated_prompt_hits_the_prefix_cache(server):
    body = {"prompt": "A long enough prompt to fill some blocks of the cache, unlike any other: " + "zebra " * 60, "max_tokens": 4, "temperature": 0}
    first = server.post(TEXT, body)[1]
    hits = server.metric("vllm:prefix_cache_hits_total")
    second = server.post(TEXT, body)[1]
    assert server.metric("vllm:prefix_cache_hits_total") - hits >= 48
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    assert second["usage"] == first["usage"]
    hits = server.metric("vllm:prefix_cache_hits_total")
    server.post(TEXT, {**body, "cache_salt": "other"})
    assert server.metric("vllm:prefix_cache_hits_total") == hits


def test_generate_keeps_the_order_and_reports_refusals(tmp_path):
    lines = [{"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}, {"prompt": "x", "temperature": 9},
             {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16, "temperature": 0}, {"prompt": [5] * 9000}]
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("\n".join(map(json.dumps, lines)) + "\n")
    done = run("generate", SMOLLM2, "--prompts", prompts)
    assert done.returncode == 0, done.stderr
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["index"] for o in outputs] == [0, 1, 2, 3]
    assert "Paris" in outputs[0]["choices"][0]["text"] and "Paris" in outputs[2]["choices"][0]["text"]
    assert "temperature" in outputs[1]["error"] and "9000" in outputs[3]["error"]
    for word in ("scheduled_latency", "prefill_latency", "decode_latency"):
        assert word in done.stderr


def test_run_and_chat_answer_at_the_terminal():
    done = run("run", SMOLLM2, "What is the capital of France?")
    assert done.returncode == 0 and "Paris" in done.stdout
    done = run("chat", SMOLLM2, input="What is the capital of France?\nAnd of Italy?\n")
    assert done.returncode == 0 and "Paris" in done.stdout and "Rome" in done.stdout
