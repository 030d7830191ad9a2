#!/usr/bin/env python3
"""Makes the tiny models of the family tests: random weights, written as GGUF, and what transformers computes with them.

    tools/make_tiny_models.py OUT_DIR        (needs torch, transformers and gguf; PyPI)

For every family OUT_DIR/tiny_NAME.gguf (float32) and OUT_DIR/tiny_NAME.txt (the format of tools/make_goldens.py). Names,
layouts and derived tensors follow llama.cpp's converter: interleaved rotary rows and rope_freqs for llama, norm weights
as 1 + w for gemma3.
"""
import hashlib
import math
import os
import sys

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers import Gemma3TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

TOP = 20
N_IDS = 56
POSITIONS = [0, 1, 6, 7, 8, 9, 15, 16, 17, 31, 32, 40, 55]
COMMON = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=3,
    max_position_embeddings=256,
    initializer_range=0.2,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
ROPE3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def configs():
    heads = dict(num_attention_heads=4, num_key_value_heads=2)
    yield "llama", LlamaConfig(**COMMON, **heads, rope_theta=10000.0, tie_word_embeddings=False)
    yield "llama3", LlamaConfig(
        **COMMON, **heads, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=100.0, **ROPE3),
    )
    yield "qwen2", Qwen2Config(**COMMON, **heads, rope_theta=10000.0, tie_word_embeddings=True)
    yield "qwen3", Qwen3Config(**COMMON, **heads, head_dim=16, rope_theta=10000.0, tie_word_embeddings=False)
    yield "gemma3", Gemma3TextConfig(
        **COMMON, num_attention_heads=2, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16,
        sliding_window=8, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        tie_word_embeddings=True,
    )


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}


def gguf_name(name, family):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    if module == "post_attention_layernorm":
        target = "post_attention_norm" if family == "gemma3" else "ffn_norm"
    elif module == "pre_feedforward_layernorm":
        target = "ffn_norm"
    elif module == "post_feedforward_layernorm":
        target = "post_ffw_norm"
    else:
        target = NAMES[module]
    return f"blk.{layer}.{target}.{kind}"


def interleave(weight, n_heads):
    """Half-split rows to pairs, as the converter stores llama's q and k."""
    rows, cols = weight.shape
    return weight.reshape(n_heads, 2, rows // n_heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def rope_freqs(config, head_dim):
    base = config.rope_parameters["rope_theta"]
    low = ROPE3["original_max_position_embeddings"] / ROPE3["low_freq_factor"]
    high = ROPE3["original_max_position_embeddings"] / ROPE3["high_freq_factor"]
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * base ** (i / head_dim)
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(ROPE3["factor"])
        else:
            smooth = (ROPE3["original_max_position_embeddings"] / wavelength - ROPE3["low_freq_factor"]) / (
                ROPE3["high_freq_factor"] - ROPE3["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / ROPE3["factor"] + smooth))
    assert len(set(factors)) > 2, "the tiny model must have frequencies on every side of the scaling"
    return np.array(factors, dtype=np.float32)


def write_gguf(path, name, config, state):
    family = {"llama3": "llama"}.get(name, name)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out = gguf.GGUFWriter(path, family)
    out.add_name(f"tiny {name}")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    out.add_rope_freq_base(rope["full_attention"]["rope_theta"] if "full_attention" in rope else rope["rope_theta"])
    if family == "gemma3":
        out.add_sliding_window(config.sliding_window)
        out.add_sliding_window_pattern(3)
    for key, value in state.items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = value.float().numpy()
        if family == "llama" and "q_proj" in key:
            weight = interleave(weight, config.num_attention_heads)
        if family == "llama" and "k_proj" in key:
            weight = interleave(weight, config.num_key_value_heads)
        if family == "gemma3" and "norm" in key:
            weight = weight + 1
        out.add_tensor(gguf_name(key, family), np.ascontiguousarray(weight))
    if name == "llama3":
        out.add_tensor("rope_freqs.weight", rope_freqs(config, head_dim))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(folder):
    for name, config in configs():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "norm" in key or "bias" in key:
                    value.add_(torch.randn_like(value) * 0.3)
        path = os.path.join(folder, f"tiny_{name}.gguf")
        write_gguf(path, name, config, model.state_dict())
        ids = [(7 * i * i + 3 * i + 5) % 96 for i in range(N_IDS)]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        lines = [
            f"# What transformers computes in float32 with tiny_{name}.gguf; see tools/make_tiny_models.py.",
            "# command: tools/make_tiny_models.py test/data/model",
            f"# torch {torch.__version__}, transformers {__import__('transformers').__version__}, gguf 0.19.0",
            f"model {digest}",
            f"prompt tiny {N_IDS}",
            "ids " + " ".join(map(str, ids)),
        ]
        for position in POSITIONS:
            values, top = logprobs[position].topk(TOP)
            lines.append(f"row {position} " + " ".join(f"{i}:{v:.6f}" for i, v in zip(top.tolist(), values.tolist())))
        with open(os.path.join(folder, f"tiny_{name}.txt"), "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
