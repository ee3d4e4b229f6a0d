"""Runs the embedding examples as a user would: with a GPU or without."""

import pathlib
import tempfile
import unittest

import programs
import tiny_model

NO_GPU = "There is no GPU here"


class Embedder(programs.ProgramTest):
    def run_embedder(self, program, *arguments):
        self.program = program
        return self.succeed(*arguments).stdout

    def test_embed_c_emits_and_launches_or_says_why_not(self):
        output = self.run_embedder("embed_c")
        self.assertRegex(output, r"^gemv_q8_0_k256_n8_w4: \d+ bytes of PTX, \d+ blocks of 128 threads\n")
        self.assertTrue(NO_GPU in output or "y[0] = 1, y[7] = 8" in output, output)

    def test_custom_kernel_runs_or_says_why_not(self):
        output = self.run_embedder("custom_kernel")
        self.assertTrue(NO_GPU in output or "y[999] = 1998" in output, output)
        self.assertEqual(output.count("\n"), 1, output)

    def test_embed_cpp_decodes_while_the_loop_serves_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tiny.gguf"
            path.write_bytes(tiny_model.tiny_model().data)
            output = self.run_embedder("embed_cpp", path)
        self.assertRegex(output, r"\n(\d+ ){7}\d+\n4 other tasks were served meanwhile\n$")

    def test_embed_cpp_says_what_is_wrong(self):
        self.program = "embed_cpp"
        run = self.run_program("/nowhere/model.gguf")
        self.assertEqual(run.returncode, 1)
        self.assertIn("/nowhere/model.gguf", run.stderr)
        self.assertEqual(self.run_program().returncode, 2)


if __name__ == "__main__":
    programs.main()
