#!/usr/bin/env python3
"""Records how other tokenizers encode the strings of token_strings.py.

The tables are for recorded_tokens_test.cpp and pretokenizer_test.cpp:

    python3 record_tokens.py smollm2 MODEL.gguf data/smollm2.json
    python3 record_tokens.py gemma3  MODEL.gguf data/gemma3.json
    python3 record_tokens.py pieces data/pieces.json

SmolLM2's ids come from Hugging Face's tokenizers, set up as that model's tokenizer.json has it,
with the tokens and merges of the GGUF file. Gemma 3's come from llama.cpp (llama-cpp-python): the
file holds SentencePiece scores, which Hugging Face would first have to turn into merges. Each table
names the versions that made it.

An entry holds the text (as hexadecimal bytes, since some of it isn't UTF-8), the ids with special
tokens parsed, the ids without where they differ, and the bytes that decoding gives with special
tokens shown, where they aren't the text itself.
"""

import json
import sys

from token_strings import DAMAGED, STRINGS

CONTROL = 3  # the token type of a GGUF file


def smollm2(path):
    import gguf
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    model = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    model.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens([t for t, kind in zip(tokens, types) if kind == CONTROL])

    def encode(text, special):
        model.encode_special_tokens = not special
        return model.encode(text, add_special_tokens=False).ids

    def decode(ids):
        return model.decode(ids, skip_special_tokens=False).encode()

    return encode, decode, f"tokenizers {tokenizers.__version__}", STRINGS


def gemma3(path):
    import ctypes

    import llama_cpp

    model = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)

    def encode(text, special):
        data = text if isinstance(text, bytes) else text.encode()
        return model.tokenize(data, add_bos=False, special=special)

    def decode(ids):
        out = b""
        for token in ids:
            buffer = (ctypes.c_char * 256)()
            size = llama_cpp.llama_token_to_piece(model._model.vocab, token, buffer, 256, 0, True)
            out += bytes(buffer[:size])
        return out

    return encode, decode, f"llama-cpp-python {llama_cpp.__version__}", STRINGS + DAMAGED


def pieces(out):
    """Where Hugging Face's tokenizers cut the strings, by the expressions of the models' files."""
    import tokenizers
    from tokenizers import Regex, pre_tokenizers

    contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    spaces = r"\s*[\r\n]+|\s+(?!\S)|\s+"
    word = r"[^\r\n\p{L}\p{N}]?\p{L}+"
    upper = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    symbols = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    cased_symbols = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
    expressions = {
        "llama-bpe": [rf"{contractions}|{word}|\p{{N}}{{1,3}}|{symbols}|{spaces}"],
        "qwen2": [rf"{contractions}|{word}|\p{{N}}|{symbols}|{spaces}"],
        "tekken": [rf"{upper}*{lower}+|{upper}+{lower}*|\p{{N}}|{cased_symbols}|{spaces}"],
        "gpt-4o": [rf"{upper}*{lower}+{contractions}?|{upper}+{lower}*{contractions}?|"
                   rf"\p{{N}}{{1,3}}|{cased_symbols}|{spaces}"],
        "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
                        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + spaces],
    }
    table = {
        name: pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(e), behavior="isolated") for e in stages])
        for name, stages in expressions.items()
    }
    table["gpt-2"] = pre_tokenizers.Split(
        Regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
        behavior="isolated")
    lines = []
    for text in STRINGS:
        entry = {"text": text.encode().hex()}
        for name, splitter in table.items():
            entry[name] = [len(piece.encode()) for piece, _ in splitter.pre_tokenize_str(text)]
        lines.append(json.dumps(entry))
    write(out, f"tokenizers {tokenizers.__version__}", lines)


def write(path, made_by, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"made_by": {json.dumps(made_by)}, "entries": [\n')
        file.write(",\n".join(lines))
        file.write("\n]}\n")
    print(f"{len(lines)} strings, {made_by}")


def main():
    if sys.argv[1] == "pieces":
        pieces(sys.argv[2])
        return
    kind, model, out = sys.argv[1:]
    encode, decode, made_by, strings = {"smollm2": smollm2, "gemma3": gemma3}[kind](model)
    entries = []
    for text in strings:
        data = text if isinstance(text, bytes) else text.encode()
        entry = {"text": data.hex(), "ids": encode(text, True)}
        plain = encode(text, False)
        # llama.cpp takes any "</s>" for an end token. In Gemma it is HTML, a user-defined token,
        # which is found in plain text, too.
        if plain != entry["ids"] and not (kind == "gemma3" and b"</s>" in data):
            entry["plain_ids"] = plain
        decoded = decode(entry["ids"])
        if decoded != data:
            entry["decoded"] = decoded.hex()
        entries.append(entry)
    write(out, made_by, [json.dumps(entry) for entry in entries])


if __name__ == "__main__":
    main()
