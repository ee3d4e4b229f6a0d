"""Runs decode with a real model on the CPU, if LATHE_TEST_MODELS names a folder that has it."""

import json
import os
import pathlib
import subprocess
import tempfile

import programs

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
VOCABULARY = 49152


class RealModelTest(programs.ProgramTest):
    program = "decode"

    def setUp(self):
        self.model = pathlib.Path(os.environ.get("LATHE_TEST_MODELS", "/nonexistent")) / MODEL
        if not self.model.is_file():
            self.skipTest(f"{MODEL} is not in LATHE_TEST_MODELS")

    def decode(self, *arguments):
        return self.succeed("-m", self.model, "--device", "cpu", *arguments)

    def test_it_knows_the_capital_of_france(self):
        self.assertIn("Paris", self.decode("What is the capital of France?").stdout)

    def test_json_text_and_ids_agree_with_the_plain_forms(self):
        arguments = ["The sky is", "--raw", "-n", "5"]
        found = json.loads(self.decode(*arguments, "--json").stdout)
        self.assertEqual(len(found["ids"]), 5)
        self.assertEqual(found["text"] + "\n", self.decode(*arguments).stdout)
        prompt = ",".join(map(str, found["prompt_ids"]))
        self.assertEqual(self.decode("--tokens", prompt, "-n", "5").stdout,
                         ",".join(map(str, found["ids"])) + "\n")

    def test_logits_and_hash_are_the_same_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "logits"
            runs = []
            for _ in range(2):
                found = json.loads(self.decode("--tokens", "1,450,7483", "-n", "3", "--json",
                                               "--logits", path).stdout)
                self.assertEqual(path.stat().st_size, 4 * VOCABULARY * (3 + 2))
                runs.append((found["logits_xxh3_64"], path.read_bytes()))
        self.assertEqual(runs[0], runs[1])

    def test_as_a_p64_file_it_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            p64 = pathlib.Path(folder) / "model.p64"
            subprocess.run([programs.PROGRAMS / "lathe", "convert", "-q", self.model, p64],
                           check=True, capture_output=True)
            arguments = ["The sky is", "--raw", "-n", "3", "--json"]
            found = json.loads(self.decode(*arguments).stdout)
            again = json.loads(self.succeed("-m", p64, "--device", "cpu", *arguments).stdout)
            self.assertEqual(again["ids"], found["ids"])
            self.assertEqual(again["logits_xxh3_64"], found["logits_xxh3_64"])

    def test_a_seed_repeats(self):
        def draw(seed):
            return self.decode("Tell me a story", "--raw", "--temperature", "1.5", "--seed", seed,
                               "-n", "6").stdout
        self.assertEqual(draw(3), draw(3))
        self.assertNotEqual(draw(3), draw(4))


if __name__ == "__main__":
    programs.main()
