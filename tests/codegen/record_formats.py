#!/usr/bin/env python3
"""Records how the gguf package decodes blocks of every format, for format_test.cpp:

    python3 record_formats.py > data/formats.txt

A line holds a format's name, the bytes of two blocks and the values they decode to, as the
hexadecimal bits of f32. The blocks are random; only their scales are made finite.
"""

import importlib.metadata

import gguf
import numpy as np

# name, GGUF type, offsets of half-precision scales in a block
FORMATS = [
    ("f32", "F32", []),
    ("f16", "F16", []),
    ("bf16", "BF16", []),
    ("q4_0", "Q4_0", [0]),
    ("q4_1", "Q4_1", [0, 2]),
    ("q5_0", "Q5_0", [0]),
    ("q5_1", "Q5_1", [0, 2]),
    ("q8_0", "Q8_0", [0]),
    ("q4_k", "Q4_K", [0, 2]),
    ("q5_k", "Q5_K", [0, 2]),
    ("q6_k", "Q6_K", [208]),
    ("q2_k", "Q2_K", [80, 82]),
    ("q3_k", "Q3_K", [108]),
    ("iq4_nl", "IQ4_NL", [0]),
    ("iq4_xs", "IQ4_XS", [0]),
    ("mxfp4", "MXFP4", []),
]
BLOCKS = 2


def blocks_of(kind, size, halves, random):
    if kind in ("F32", "F16", "BF16"):
        values = random.standard_normal(32).astype(np.float32)
        if kind == "F16":
            return values.astype(np.float16).view(np.uint8)
        if kind == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in halves:
        scales = random.standard_normal(BLOCKS).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    if kind == "MXFP4":
        blocks[:, 0] = [0, 120]  # exponents: the least, whose numbers are subnormal, and one of a weight
    return blocks.reshape(-1)


def main():
    random = np.random.default_rng(20)
    print(f"# Decoded by gguf {importlib.metadata.version('gguf')}; record_formats.py made this.")
    for name, kind, halves in FORMATS:
        quant = gguf.GGMLQuantizationType[kind]
        size = gguf.GGML_QUANT_SIZES[quant][1]
        data = blocks_of(kind, size, halves, random)
        values = gguf.dequantize(data, quant).astype(np.float32)
        bits = " ".join(f"{word:08x}" for word in values.view(np.uint32))
        print(name, data.tobytes().hex(), bits)


if __name__ == "__main__":
    main()
