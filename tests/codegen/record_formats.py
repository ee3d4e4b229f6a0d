#!/usr/bin/env python3
"""Records how blocks of every format decode, for format_test.cpp: by the gguf package, and those
formats that it does not have by functions of this file.

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


def signed_bytes(block, scale, first, count):
    return scale * block[first:first + count].view(np.int8).astype(np.float32)


def half(block, at):
    return block[at:at + 2].view(np.float16)[0].astype(np.float32)


def q8_k(block):
    return signed_bytes(block, block[:4].view(np.float32)[0], 4, 256)


def q4_k_soa(block):
    values = []
    for run in range(8):
        codes = block[32 * (run // 2):32 * (run // 2) + 32] >> (4 * (run % 2)) & 15
        scale, offset = half(block, 128 + 2 * run), half(block, 144 + 2 * run)
        values.append(scale * codes.astype(np.float32) - offset)
    return np.concatenate(values)


def fp8_e4m3(block):
    code = int(block[0])
    exponent, fraction = code >> 3 & 15, code & 7
    magnitude = fraction * 2.0**-9 if exponent == 0 else (8 + fraction) * 2.0**(exponent - 10)
    return np.array([-magnitude if code & 128 else magnitude], np.float32)


def ternary(block):
    return np.array([(0, 1, -1, 0)[byte >> shift & 3] for byte in map(int, block)
                     for shift in (0, 2, 4, 6)], np.float32)


def f64(block):
    return block.view(np.float64).astype(np.float32)


# name, bytes of a block, offsets of half-precision scales in it, how a block decodes
OTHERS = [
    ("q8_1", 36, [0, 2], lambda block: signed_bytes(block, half(block, 0), 4, 32)),
    ("q8_1_tail", 36, [32, 34], lambda block: signed_bytes(block, half(block, 32), 0, 32)),
    ("q8_k", 292, [], q8_k),
    ("q4_k_soa", 160, list(range(128, 160, 2)), q4_k_soa),
    ("fp8_e4m3", 1, [], fp8_e4m3),
    ("ternary", 8, [], ternary),
    ("f64", 8, [], f64),
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


def other_blocks(name, size, halves, random):
    if name == "fp8_e4m3":  # every code but NaN, which has no one spelling
        return [np.array([code], np.uint8) for code in range(256) if code & 127 != 127]
    if name == "f64":
        return list(random.standard_normal(32).view(np.uint8).reshape(32, 8))
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = random.standard_normal(BLOCKS).astype(np.float16).view(
            np.uint8).reshape(BLOCKS, 2)
    if name == "q8_k":
        blocks[:, :4] = random.standard_normal(BLOCKS).astype(np.float32).view(np.uint8).reshape(
            BLOCKS, 4)
    return list(blocks)


def main():
    random = np.random.default_rng(20)
    print(f"# Decoded by gguf {importlib.metadata.version('gguf')} and record_formats.py, which made this.")
    for name, kind, halves in FORMATS:
        quant = gguf.GGMLQuantizationType[kind]
        size = gguf.GGML_QUANT_SIZES[quant][1]
        data = blocks_of(kind, size, halves, random)
        values = gguf.dequantize(data, quant).astype(np.float32)
        bits = " ".join(f"{word:08x}" for word in values.view(np.uint32))
        print(name, data.tobytes().hex(), bits)
    for name, size, halves, decode in OTHERS:
        blocks = other_blocks(name, size, halves, random)
        values = np.concatenate([decode(block) for block in blocks]).astype(np.float32)
        bits = " ".join(f"{word:08x}" for word in values.view(np.uint32))
        print(name, np.concatenate(blocks).tobytes().hex(), bits)


if __name__ == "__main__":
    main()
