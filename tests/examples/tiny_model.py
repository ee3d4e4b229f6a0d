"""Writes GGUF files of a tiny llama with random weights, and says where their fields are."""

import functools
import math
import random
import struct

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
SCALARS = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?", UINT64: "<Q"}
F32, Q8_0 = 0, 8
ALIGNMENT = 32

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, CONTEXT = 2, 64, 96, 4, 2, 8192
CHAT_TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n"
                 "{{ m.content }}<|im_end|>\n{% endfor %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


class GgufWriter:
    """Collects the bytes of a file and marks the offset of each field by name."""

    def __init__(self):
        self.data = bytearray()
        self.marks = {}

    def field(self, name, form, value):
        self.marks[name] = (len(self.data), form)
        self.data += struct.pack(form, value)

    def string(self, name, text):
        encoded = text.encode()
        self.field(f"{name}.length", "<Q", len(encoded))
        self.data += encoded

    def value(self, name, kind, value):
        if kind == STRING:
            self.string(name, value)
        elif kind == ARRAY:
            element, values = value
            self.field(f"{name}.element", "<I", element)
            self.field(f"{name}.count", "<Q", len(values))
            for index, item in enumerate(values):
                self.value(f"{name}[{index}]", element, item)
        else:
            self.field(name, SCALARS[kind], value)

    def pad(self):
        self.data += bytes(-len(self.data) % ALIGNMENT)


def byte_tokens():
    """The 256 bytes as byte-level BPE spells them: printable ones as they are, others moved up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def hyperparameters():
    return {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "tiny"),
        "general.alignment": (UINT32, ALIGNMENT),
        "llama.block_count": (UINT32, LAYERS),
        "llama.context_length": (UINT32, CONTEXT),
        "llama.embedding_length": (UINT32, HIDDEN),
        "llama.feed_forward_length": (UINT32, FFN),
        "llama.attention.head_count": (UINT32, HEADS),
        "llama.attention.head_count_kv": (UINT32, KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
        "llama.rope.dimension_count": (UINT32, HIDDEN // HEADS),
        "llama.rope.freq_base": (FLOAT32, 10000.0),
    }


def tokenizer():
    tokens = SPECIAL + byte_tokens() + ["th"]
    types = [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL))
    return {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, types)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["t h"])),
        "tokenizer.ggml.bos_token_id": (UINT32, 0),
        "tokenizer.ggml.eos_token_id": (UINT32, 2),
        "tokenizer.chat_template": (STRING, CHAT_TEMPLATE),
    }


def tensor_shapes(vocabulary):
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd.weight": (HIDDEN, vocabulary), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN, kv),
            "attn_v": (HIDDEN, kv), "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,),
            "ffn_gate": (HIDDEN, FFN), "ffn_up": (HIDDEN, FFN), "ffn_down": (FFN, HIDDEN),
        }.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes


VOCABULARY = len(SPECIAL) + 256 + 1


# Two heads of 32 values: the fewest that fused kernels take.
FUSIBLE = {"llama.attention.head_count": (UINT32, 2), "llama.attention.head_count_kv": (UINT32, 1),
           "llama.rope.dimension_count": (UINT32, 32)}


def tiny_model(with_tokenizer=True, changes=None, weight=None, matrices=F32):
    """A GgufWriter that holds the file. `changes` replaces metadata: {key: (type, value) or None};
    `weight` is the value of every weight in place of a random one; `matrices` is their format."""
    metadata = hyperparameters()
    no_tokenizer = {"tokenizer.ggml.model": (STRING, "no_vocab")}
    metadata.update(tokenizer() if with_tokenizer else no_tokenizer)
    metadata.update(changes or {})
    metadata = {key: entry for key, entry in metadata.items() if entry is not None}
    shapes = tensor_shapes(VOCABULARY)

    file = GgufWriter()
    file.field("magic", "<I", 0x46554747)
    file.field("version", "<I", 3)
    file.field("tensor_count", "<Q", len(shapes))
    file.field("metadata_count", "<Q", len(metadata))
    for key, (kind, value) in metadata.items():
        file.string(f"key {key}", key)
        file.field(f"type of {key}", "<I", kind)
        file.value(key, kind, value)
    offset = 0
    for name, shape in shapes.items():
        file.string(f"name {name}", name)
        file.field(f"{name}.dimensions", "<I", len(shape))
        for index, size in enumerate(shape):
            file.field(f"{name}.size{index}", "<Q", size)
        values = math.prod(shape)
        quantized = matrices == Q8_0 and len(shape) > 1
        file.field(f"{name}.type", "<I", Q8_0 if quantized else F32)
        file.field(f"{name}.offset", "<Q", offset)
        size = values // 32 * 34 if quantized else 4 * values
        offset += size + -size % ALIGNMENT
    file.pad()
    file.marks["data"] = (len(file.data), "")
    file.data += weight_data(weight, matrices)
    return file


@functools.cache
def weight_data(weight, matrices):
    """All tensors one after the other, each padded. Made once: many files have the same."""
    generator = random.Random(1)
    data = bytearray()
    for name, shape in tensor_shapes(VOCABULARY).items():
        values = math.prod(shape)
        if weight is not None:
            numbers = [weight] * values
        elif "norm" in name:
            numbers = [1.0] * values
        else:
            numbers = [generator.gauss(0, HIDDEN ** -0.5) for _ in range(values)]
        if matrices == Q8_0 and len(shape) > 1:
            for at in range(0, values, 32):
                block = numbers[at:at + 32]
                scale = max(map(abs, block)) / 127
                data += struct.pack("<e32b", scale, *(round(x / scale) for x in block))
        else:
            data += struct.pack(f"<{values}f", *numbers)
        data += bytes(-len(data) % ALIGNMENT)
    return bytes(data)
