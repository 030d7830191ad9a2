"""The benchmarks that need no server: their lines can be read by machines, whatever the figures are."""
import re
import subprocess

import pytest
from conftest import PREFIX, PROGRAM, ROOT, SANITISED, SMOLLM2

NUMBER = r"\d+(?:\.\d+)?"


def bench(*arguments):
    return subprocess.run([*PREFIX, PROGRAM, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=280, cwd=ROOT)


def fields(line):
    return {name: float(value) for name, value in re.findall(rf"(\w+)=({NUMBER})(?=%|\s|$)", line)}


def test_bench_loop_prints_one_line_a_size():
    done = bench("loop", "--running", "8,32", "--steps", 50, "--warmup", 10, "--repeats", 2)
    assert done.returncode == 0, done.stderr
    pattern = rf"^running=(\d+) host_us=({NUMBER}) plan_commit_us=({NUMBER}) output_us=({NUMBER})$"
    lines = re.findall(pattern, done.stdout, re.M)
    assert [int(line[0]) for line in lines] == [8, 32]
    for line in lines:
        host, plan_commit, output = map(float, line[1:])
        assert 0 < plan_commit and 0 < output and plan_commit + output <= host + 0.2
    assert re.search(rf"^  a sequence: {NUMBER} us, {NUMBER} of that at 8;", done.stdout, re.M)


def test_bench_loop_with_a_device_time_prints_the_share_that_the_device_is_busy():
    done = bench("loop", "--running", 8, "--steps", 30, "--warmup", 5, "--device-ms", 2)
    assert done.returncode == 0, done.stderr
    shares = re.findall(rf"^running=8 device_ms=2 depth=(\d) device_busy=({NUMBER})%$", done.stdout, re.M)
    assert [depth for depth, _ in shares] == ["1", "2", "3"]
    assert all(0 < float(share) <= 100 for _, share in shares)
    one = bench("loop", "--running", 8, "--steps", 30, "--warmup", 5, "--device-ms", 2, "--depth", 4)
    assert one.stdout.count("\n") == 1 and " depth=4 " in one.stdout


def test_bench_stream_counts_events_sends_and_what_the_kernel_can_do():
    done = bench("stream", "--connections", 8, "--max-tokens", 200, "--rounds", 2)
    assert done.returncode == 0, done.stderr
    first, second = map(fields, done.stdout.splitlines())
    assert first["connections"] == 8
    assert first["events_s"] > 0 and first["raw_sends_s"] > 0 and first["ratio"] > 0
    # One event a send; the head, the end mark and the last chunk of each answer are sends of their own.
    assert 0.9 < second["events_per_send"] <= 1.05
    assert 50 < second["bytes_per_send"] < 1000


@pytest.mark.skipif(SANITISED, reason="compares costs, which are not those of this build")
def test_bench_stream_with_a_model_compares_streamed_with_plain():
    done = bench("stream", SMOLLM2, "--connections", 2, "--max-tokens", 8, "--rounds", 1, "--kv-cache-memory-bytes", "64M", "--max-model-len", 512)
    assert done.returncode == 0, done.stderr
    line = fields(done.stdout)
    assert line["connections"] == 2 and line["streamed_cpu_s"] > 0 and line["plain_cpu_s"] > 0 and line["ratio"] > 0


@pytest.mark.parametrize("arguments, word", [
    (("loop", "--running", "0"), "--running"),
    (("loop", "--running", "many"), "--running"),
    (("loop", "--steps", "1"), "--steps"),
    (("loop", "--depth", "9"), "--depth"),
    (("loop", "--device-ms", "-1"), "--device-ms"),
    (("loop", "somewhere.gguf"), "somewhere.gguf"),
    (("stream", "--rounds", "0"), "--rounds"),
    (("stream", "--connections", "100000"), "--connections"),
    (("stream", "/nowhere.gguf"), "/nowhere.gguf"),
])
def test_a_wrong_option_gives_one_line_and_exit_1(arguments, word):
    done = bench(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("heddle: ") and word in done.stderr
