#!/usr/bin/env python3
"""Makes the model goldens: what Hugging Face transformers computes from the same GGUF file in float32.

    tools/make_goldens.py MODEL.gguf OUT.txt        (needs torch, transformers and gguf; PyPI)

For every prompt: its token ids, and at chosen positions the 20 most likely next tokens with their log-probabilities.
For prompts marked `greedy`, the ids that greedy decoding appends. The C++ tests read OUT.txt (test/model/goldens.h), so
they need neither torch nor a tokenizer. The format is one record a line:

    # comment
    model SHA256
    prompt NAME N_IDS
    ids ID ...
    row POSITION ID:LOGPROB ...
    greedy ID ...
"""
import hashlib
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOP = 20
N_GREEDY = 12

ENGLISH = (
    "The harbour was quiet in the early morning. Two boats lay at the pier, and an old man was mending a net with slow, "
    "careful hands. He had done this every day for fifty years, and he knew each knot as one knows the faces of friends. "
)
CODE = "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\nprint(fibonacci("


def prompts(name):
    """(name, text, positions or None for the last 8, greedy?)"""
    yield "france", "The capital of France is", None, True
    yield "code", CODE, None, True
    yield "chinese", "北京是中国的首都。上海是", None, False
    yield "english", ENGLISH, None, False
    if name == "llama":
        yield "chat", (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
        ), None, True
        yield "long", ENGLISH * 6, [0, 1, 15, 16, 17, 100, 255, 256, 257, 280], False
    else:
        yield "chat", (
            "<start_of_turn>user\nWhat is the capital of France?<end_of_turn>\n<start_of_turn>model\n"
        ), None, True
        # Past the sliding window of 512 positions.
        yield "long", ENGLISH * 13, [0, 1, 255, 256, 257, 510, 511, 512, 513, 514, 600, 630], False


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def main(path, out_path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder, file = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    family = "llama" if model.config.model_type == "llama" else model.config.model_type
    print(model.config, file=sys.stderr)
    bos = [tokenizer.bos_token_id] if family.startswith("gemma") else []
    lines = [
        f"# What transformers computes in float32 from {file}; see tools/make_goldens.py.",
        f"# command: tools/make_goldens.py models/{file} test/data/model/{os.path.basename(out_path)}",
        f"# torch {torch.__version__}, transformers {__import__('transformers').__version__}",
        f"model {sha256(path)}",
    ]
    for name, text, positions, greedy in prompts(family):
        ids = bos + tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        logprobs = torch.log_softmax(logits, dim=-1)
        lines += [f"prompt {name} {len(ids)}", "ids " + " ".join(map(str, ids))]
        for position in positions or range(max(0, len(ids) - 8), len(ids)):
            values, top = logprobs[position].topk(TOP)
            lines.append(f"row {position} " + " ".join(f"{i}:{v:.6f}" for i, v in zip(top.tolist(), values.tolist())))
        if greedy:
            more = list(ids)
            with torch.no_grad():
                for _ in range(N_GREEDY):
                    more.append(int(model(torch.tensor([more])).logits[0, -1].argmax()))
            lines.append("greedy " + " ".join(map(str, more[len(ids):])))
            print(name, repr(tokenizer.decode(more)), file=sys.stderr)
    with open(out_path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
