#!/usr/bin/env python3
"""Makes the corpus of the GGUF fuzz test: tiny models, written by llama.cpp's own PyPI package `gguf`.

usage: make_gguf_corpus.py [--out test/data/fuzz/gguf]

One file a family, all block formats among their tensors, with the keys that heddle reads. Needs: pip install gguf numpy.
"""
import argparse
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quant_shape_to_byte_shape

HIDDEN, VOCAB = 256, 6
BLOCK_TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


def write(path: pathlib.Path, family: str, types: list[str]) -> None:
    rng = np.random.default_rng(len(family))
    writer = GGUFWriter(path, family)
    writer.add_name(f"tiny {family}")
    writer.add_tags(["a", ""])
    writer.add_block_count(1)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_context_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if family == "gemma3":
        writer.add_sliding_window(16)
        writer.add_key_length(64)
        writer.add_value_length(64)
    writer.add_tokenizer_model("gpt2" if family != "gemma3" else "llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_token_scores([-float(i) for i in range(VOCAB)])
    writer.add_token_merges(["t 0", "t 1"])
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(True)

    def quantised(name: str, rows: int, kind: str) -> None:
        raw = GGMLQuantizationType[kind]
        shape = quant_shape_to_byte_shape((rows, HIDDEN), raw)
        writer.add_tensor(name, rng.integers(0, 256, shape, dtype=np.uint8), raw_dtype=raw)

    quantised("token_embd.weight", VOCAB, types[0])
    for i, kind in enumerate(types[1:]):
        quantised(f"blk.0.w{i}.weight", 1, kind)
    writer.add_tensor("blk.0.attn_norm.weight", rng.normal(size=HIDDEN).astype(np.float32))
    writer.add_tensor("half.weight", rng.normal(size=(2, 8)).astype(np.float16))
    if family == "llama":
        writer.add_tensor("rope_freqs.weight", np.ones(HIDDEN // 8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("test/data/fuzz/gguf"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    write(args.out / "llama.gguf", "llama", BLOCK_TYPES[:4])
    write(args.out / "qwen2.gguf", "qwen2", BLOCK_TYPES[4:7])
    write(args.out / "gemma3.gguf", "gemma3", BLOCK_TYPES[7:])


if __name__ == "__main__":
    main()
