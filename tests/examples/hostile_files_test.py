"""Gives decode damaged model files: cut off at many places, and with each field of the header and
each hyperparameter absurd. Every one must end with exit code 1 and one sentence."""

import os
import pathlib
import struct
import tempfile

import programs
from tiny_model import (ARRAY, BOOL, F32, FLOAT32, INT32, STRING, UINT32, UINT64, hyperparameters,
                        tiny_model)

PLACES = 50
REAL_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
ABSURD = {"<I": (0, 0x7FFFFFFF, 0xFFFFFFFF), "<i": (-1, 0x7FFFFFFF),
          "<Q": (0, 1 << 31, 1 << 62, (1 << 64) - 1)}


class HostileFileTest(programs.ProgramTest):
    program = "decode"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "model.gguf"

    def decode(self, *options):
        return self.run_program("-m", self.path, "--device", "cpu", "--tokens", "5", "-n", "1",
                                *options)

    def must_refuse(self, subject):
        run = self.decode()
        with self.subTest(subject):
            self.assertEqual(run.returncode, 1, f"{subject}: {run.stderr}")
            self.assert_one_sentence(run.stderr, subject)

    def must_survive(self, subject):
        """Either works or is refused, whatever the file means now."""
        run = self.decode("--quiet")
        with self.subTest(subject):
            self.assertIn(run.returncode, (0, 1), f"{subject}: {run.stderr}")
            if run.returncode:
                self.assert_one_sentence(run.stderr, subject)

    def cut_at_many_places(self, size):
        """Cuts the file at self.path shorter and shorter."""
        for place in reversed(range(PLACES)):
            length = size * place // PLACES
            os.truncate(self.path, length)
            self.must_refuse(f"cut to {length} of {size} bytes")


class CutFiles(HostileFileTest):
    def test_the_whole_file_works(self):
        self.path.write_bytes(tiny_model().data)
        self.assertEqual(self.decode().returncode, 0)

    def test_a_tiny_model_cut_anywhere(self):
        data = tiny_model().data
        self.path.write_bytes(data)
        os.truncate(self.path, len(data) - 1)
        self.must_refuse("one byte short")
        self.cut_at_many_places(len(data))

    def test_a_tiny_model_cut_inside_its_header(self):
        file = tiny_model()
        self.path.write_bytes(file.data)
        self.cut_at_many_places(file.marks["data"][0])

    def test_a_real_model_cut_anywhere(self):
        model = pathlib.Path(os.environ.get("LATHE_TEST_MODELS", "/nonexistent")) / REAL_MODEL
        if not model.is_file():
            self.skipTest(f"{REAL_MODEL} is not in LATHE_TEST_MODELS")
        data = model.read_bytes()
        self.path.write_bytes(data)
        self.cut_at_many_places(len(data))


class AbsurdFields(HostileFileTest):
    def overwrite(self, file, mark, value):
        offset, form = file.marks[mark]
        data = bytearray(file.data)
        struct.pack_into(form, data, offset, value)
        self.path.write_bytes(data)

    def test_the_header_itself(self):
        file = tiny_model()
        for mark in ("magic", "version", "tensor_count", "metadata_count"):
            for value in ABSURD[file.marks[mark][1]]:
                self.overwrite(file, mark, value)
                self.must_refuse(f"{mark} = {value:#x}")

    def test_lengths_and_types_in_the_metadata(self):
        file = tiny_model()
        for mark, (_, form) in file.marks.items():
            describes_value = mark.endswith((".length", ".count", ".element")) and "[" not in mark
            if mark.startswith("type of ") or describes_value:
                for value in ABSURD[form]:
                    self.overwrite(file, mark, value)
                    self.must_survive(f"{mark} = {value:#x}")

    def test_lengths_no_file_can_have(self):
        file = tiny_model()
        for mark, (_, form) in file.marks.items():
            if form == "<Q" and mark.endswith((".length", ".count")):
                if "[" not in mark or "[7]" in mark:
                    self.overwrite(file, mark, (1 << 64) - 1)
                    self.must_refuse(f"{mark} = 2^64 - 1")

    def test_the_description_of_a_tensor(self):
        file = tiny_model()
        for tensor in ("token_embd.weight", "blk.0.ffn_down.weight", "blk.1.attn_norm.weight"):
            for field in ("dimensions", "size0", "type", "offset"):
                mark = f"{tensor}.{field}"
                for value in ABSURD[file.marks[mark][1]]:
                    if field == "type" and value == F32:
                        continue
                    self.overwrite(file, mark, value)
                    # An offset of 0 is a tensor on top of another, which a reader may accept.
                    (self.must_survive if field == "offset" else self.must_refuse)(
                        f"{mark} = {value:#x}")

    def test_hyperparameters_that_no_model_has(self):
        for key, (kind, _) in hyperparameters().items():
            if not key.startswith("llama."):
                continue
            for value in ((UINT32, 0), (UINT64, 1 << 40), (INT32, -5), (STRING, "many"),
                          (ARRAY, (STRING, ["a", "b"])), (FLOAT32, float("nan")),
                          (FLOAT32, float("inf")), None):
                self.path.write_bytes(tiny_model(changes={key: value}).data)
                self.must_survive(f"{key} = {value}")
            if kind == UINT32 and key != "llama.context_length":
                self.path.write_bytes(tiny_model(changes={key: (UINT64, 1 << 40)}).data)
                self.must_refuse(f"{key} = 2^40")
            self.path.write_bytes(tiny_model(changes={key: (STRING, "many")}).data)
            self.must_refuse(f"{key} = 'many'")

    def test_an_architecture_nobody_knows(self):
        self.path.write_bytes(tiny_model(changes={
            "general.architecture": (STRING, "perpetuum")}).data)
        run = self.decode()
        self.assertEqual(run.returncode, 1)
        self.assertIn("perpetuum", run.stderr)

    def test_a_vocabulary_that_contradicts_itself(self):
        for key, value in (("tokenizer.ggml.model", (STRING, "runes")),
                           ("tokenizer.ggml.pre", (STRING, "runes")),
                           ("tokenizer.ggml.tokens", (ARRAY, (STRING, ["one"]))),
                           ("tokenizer.ggml.tokens", (UINT32, 1)),
                           ("tokenizer.ggml.tokens", None),
                           ("tokenizer.ggml.token_type", (ARRAY, (INT32, [1]))),
                           ("tokenizer.ggml.merges", (ARRAY, (STRING, ["nospace"]))),
                           ("tokenizer.ggml.merges", (ARRAY, (STRING, ["t q"]))),
                           ("tokenizer.ggml.bos_token_id", (UINT32, 1 << 31)),
                           ("tokenizer.ggml.eos_token_id", (STRING, "the end")),
                           ("tokenizer.chat_template", (BOOL, True))):
            self.path.write_bytes(tiny_model(changes={key: value}).data)
            run = self.run_program("-m", self.path, "--device", "cpu", "hi", "-n", "1", "-q")
            with self.subTest(f"{key} = {value}"):
                self.assertIn(run.returncode, (0, 1), run.stderr)
                if run.returncode:
                    self.assert_one_sentence(run.stderr, key)


if __name__ == "__main__":
    programs.main()
