#!/usr/bin/env python3
"""Makes the goldens of dequantisation with the reference: the PyPI package `gguf` (llama.cpp's own).

usage: make_dequant_goldens.py [--out test/data] [--models models]

Writes OUT/device/dequant_goldens.bin: for each block format a record
    name (8 bytes, zero padded), n_blocks u32, block_weights u32, block_bytes u32, the blocks, their weights as f32
of random blocks and of blocks with extreme scales and codes (all scales finite), all little-endian; and
OUT/model/real_rows.txt: for some tensors of each model in --models the type, shape, and per chosen row the FNV-1a-64 of the
dequantised row's f32 bytes. Needs: pip install gguf numpy.
"""
import argparse
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants

# Where the f16 numbers of a block lie, by type.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Largest, smallest denormal, largest denormal, smallest normal, signed zeros, one, -0.1
EXTREME_HALVES = [0x7BFF, 0xFBFF, 0x0001, 0x8001, 0x03FF, 0x0400, 0x0000, 0x8000, 0x3C00, 0xAE66]


def blocks_of(name: str, rng: np.random.Generator) -> np.ndarray:
    """[n, block_bytes] random blocks, then blocks of one repeated byte under each extreme scale."""
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if name == "F32":
        bits = np.concatenate([rng.integers(0, 0x7F800000, 60), [0, 1, 0x80000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000]])
        return bits.astype("<u4").view(np.uint8).reshape(-1, 4)
    if name in ("F16", "BF16"):
        infinity = 0x7C00 if name == "F16" else 0x7F80
        bits = np.concatenate([rng.integers(0, infinity, 60), EXTREME_HALVES, [infinity, infinity | 0x8000]])
        return bits.astype("<u2").view(np.uint8).reshape(-1, 2)
    n_random = 6 if weights == 32 else 3
    random = rng.integers(0, 256, (n_random, size), dtype=np.uint8)
    extreme = np.stack([np.full(size, fill, np.uint8) for fill in (0x00, 0xFF, 0x80, 0x5A)[: 4 if weights == 32 else 2]])
    rows = np.concatenate([random] + [extreme] * (len(EXTREME_HALVES) if weights == 32 else 2))
    for at in HALVES[name]:
        for i in range(len(rows)):
            half = rng.normal(0, 0.05) if i < n_random else None
            value = np.float16(half).view(np.uint16) if half is not None else EXTREME_HALVES[(i + at) % len(EXTREME_HALVES)]
            rows[i, at:at + 2] = np.frombuffer(struct.pack("<H", int(value)), np.uint8)
    return rows


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("test/data"))
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("models"))
    args = parser.parse_args()

    rng = np.random.default_rng(20240607)
    path = args.out / "device" / "dequant_goldens.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for name in TYPES:
            kind = GGMLQuantizationType[name]
            rows = blocks_of(name, rng)
            weights, size = GGML_QUANT_SIZES[kind]
            with np.errstate(over="ignore"):
                values = quants.dequantize(rows, kind).astype("<f4")
            assert values.size == len(rows) * weights, name
            file.write(struct.pack("<8sIII", name.encode(), len(rows), weights, size) + rows.tobytes() + values.tobytes())
    print(f"{path}: {path.stat().st_size} bytes")

    lines = ["# model | tensor | type | cols | rows | row=fnv1a64(f32 bytes) ...   made by tools/make_dequant_goldens.py"]
    for model in sorted(args.models.glob("*.gguf")):
        seen: dict[str, int] = {}
        for tensor in GGUFReader(model).tensors:
            kind = tensor.tensor_type.name
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > 2:
                continue
            shape = [int(x) for x in tensor.shape] + [1]
            raw = tensor.data.reshape(shape[1], -1)
            rows = sorted({0, shape[1] // 3, shape[1] - 1})
            sums = [f"{r}={fnv1a(quants.dequantize(raw[r:r + 1], tensor.tensor_type).astype('<f4').tobytes()):016x}" for r in rows]
            lines.append(" | ".join([model.name, tensor.name, kind, str(shape[0]), str(shape[1]), " ".join(sums)]))
    path = args.out / "model" / "real_rows.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: {len(lines) - 1} tensors")


if __name__ == "__main__":
    main()
