"""Runs dump_ptx on a machine that need have no GPU: each way to name kernels, each route that works
here, and command lines that make no sense."""

import pathlib
import re
import subprocess
import tempfile

import programs
from tiny_model import FUSIBLE, Q8_0, tiny_model

KEY = "gemv.q4_k.k4096.n14336.w4"
WORDS = ["gemv", "q4_k", "k=4096", "n=14336", "warps=4"]


class DumpPtxTest(programs.ProgramTest):
    program = "dump_ptx"
    # NVRTC leaves memory behind when it is unloaded, which a leak checker would blame on us.
    extra_environment = {"ASAN_OPTIONS": "detect_leaks=0"}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def listed_routes(self):
        """{route: whether it works here}, from --list."""
        return {name: state == "available" for name, state in re.findall(
            r"^  (\w+) +(available|not available): ", self.succeed("--list").stdout, re.M)}

    def compiler_route(self):
        for route in ("nvrtc", "llvm"):
            if self.listed_routes()[route]:
                return route
        self.skipTest("neither NVRTC nor the LLVM plugin is here")

    def ptxas(self):
        if self.run_program(KEY, "--route", "text", "--assemble").returncode == 0:
            return
        self.skipTest("there is no ptxas here")


class WhatThereIs(DumpPtxTest):
    def test_help_and_version_go_to_stdout(self):
        for option, word in (("--help", "Usage: dump_ptx"), ("--version", "dump_ptx ")):
            run = self.succeed(option)
            self.assertIn(word, run.stdout)
            self.assertEqual(run.stderr, "")

    def test_list_names_everything(self):
        text = self.succeed("--list").stdout
        for word in ("gemv", "argmax_merge", "q6_k", "head_dim", "gelu_tanh", "sm_90a", "sm_80"):
            self.assertIn(word, text)
        self.assertEqual(set(self.listed_routes()), {"nvrtc", "llvm", "text"})

    def test_the_list_says_why_a_route_is_not_available(self):
        text = self.succeed("--list", "--nvrtc", "/no/such/library").stdout
        self.assertRegex(text, r"nvrtc +not available: .*/no/such/library")

    def test_the_environment_names_the_compilers_and_an_option_wins(self):
        for env, options, place in (({"LATHE_LLVM": "/from/environment"}, [], "/from/environment"),
                                    ({"LATHE_LLVM": "/from/environment"},
                                     ["--llvm", "/from/option"], "/from/option")):
            text = self.succeed("--list", *options, env=env).stdout
            self.assertRegex(text, rf"llvm +not available: .*{place}")


class OneKernel(DumpPtxTest):
    def test_every_available_route_makes_the_kernel(self):
        for route, available in self.listed_routes().items():
            if not available:
                self.fail_to_run([], KEY, "--route", route)
                continue
            for target in ("sm_80", "sm_90a", "sm_120a"):
                run = self.succeed(KEY, "--route", route, "--target", target)
                self.assertIn(f".target {target}\n", run.stdout)
                self.assertIn(f".entry {KEY.replace('.', '_')}(", run.stdout)
                self.assertIn(f"by {route}", run.stderr)

    def test_a_key_and_its_parts_are_the_same_kernel(self):
        self.assertEqual(self.succeed(KEY, "--route", "text").stdout,
                         self.succeed(*WORDS, "--route", "text").stdout)

    def test_fields_change_a_key(self):
        run = self.succeed(KEY, "warps=8", "--route", "text")
        self.assertTrue(run.stdout.startswith("// gemv.q4_k.k4096.n14336.w8\n"), run.stdout[:80])

    def test_the_first_route_that_works_is_taken(self):
        run = self.succeed(KEY, "--route", "nvrtc,text", "--nvrtc", "/no/such/library")
        self.assertIn("by text", run.stderr)

    def test_source_needs_no_compiler(self):
        run = self.succeed(KEY, "--source", "--nvrtc", "/no/such/library")
        self.assertIn('#include "ops/', run.stdout)
        self.assertIn("__global__", run.stdout)

    def test_assemble_reports_resources(self):
        self.ptxas()
        run = self.succeed(KEY, "--route", "text", "--assemble")
        self.assertRegex(run.stderr, r"; [1-9]\d* registers, .* [1-9]\d* bytes of code")

    def test_failures_are_one_sentence(self):
        for route in ("nvrtc", "llvm"):
            self.fail_to_run(["/no/library"], KEY, "--route", route, f"--{route}", "/no/library")
        self.fail_to_run(["template"], "gemv.f32.k64.n64.w4", "bias=1", "--route", "text")
        self.fail_to_run(["/no/ptxas"], KEY, "--assemble", "--ptxas", "/no/ptxas")
        self.fail_to_run(["/dev/null/folder"], KEY, "--route", "text", "--out", "/dev/null/folder")
        self.fail_to_run(["/no/model"], "--model", "/no/model")

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            run = self.run_program(KEY, "--route", "text", stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 1)
        self.assertIn("No space left", run.stderr)


class ManyKernels(DumpPtxTest):
    def test_all_has_every_kernel_of_the_table_and_names_read_back(self):
        self.succeed("--all", "--out", self.folder, "--source")
        keys = sorted(path.name.removesuffix(".cu") for path in self.folder.iterdir())
        kernels = re.search(r"Kernels, .*?\n\n", self.succeed("--list").stdout, re.S).group(0)
        self.assertEqual({key.split(".")[0] for key in keys},
                         set(re.findall(r"^  (\w+)", kernels, re.M)))
        for key in keys:
            self.assertIn(f"{key}: ", self.succeed(key, "--source").stderr)

    def test_all_skips_what_the_text_route_does_not_cover(self):
        run = self.succeed("--all", "--out", self.folder, "--route", "text")
        made, skipped = map(int, re.search(r"^(\d+) made, (\d+) skipped, 0 failed", run.stderr,
                                           re.M).groups())
        self.assertEqual(len(list(self.folder.iterdir())), made)
        self.assertEqual(run.stderr.count(": skipped, "), skipped)
        self.assertIn(f"{KEY}.ptx", {path.name for path in self.folder.iterdir()})

    def test_a_model_gives_the_kernels_of_its_plan(self):
        route = self.compiler_route()
        path = self.folder / "tiny.gguf"
        path.write_bytes(tiny_model().data)
        run = self.succeed("--model", path, "--context", "64", "--kv", "f32", "--route", route)
        self.assertIn("// gemv.f32.k64.n96.w", run.stdout)
        self.assertIn("// attention.f32.h4.kvh2.d16", run.stdout)
        self.assertEqual(run.stdout.count(".visible .entry"), run.stderr.count(f"by {route}"))


    def test_the_persistent_kernel_of_a_model(self):
        path = self.folder / "tiny.gguf"
        path.write_bytes(tiny_model(changes=FUSIBLE, matrices=Q8_0).data)
        run = self.succeed("--model", path, "--persistent", "--source")
        self.assertIn("run_persistent<Phases>", run.stdout)
        self.assertIn("persistent: CUDA C++ source", run.stderr)
        self.fail_to_run(["sm_80", "bulk copies"], "--model", path, "--persistent",
                         "--target", "sm_80")
        path.write_bytes(tiny_model().data)
        self.fail_to_run(["f32"], "--model", path, "--persistent", "--source")


class Verification(DumpPtxTest):
    """By emulation, so that a machine with a GPU tests the same."""

    def test_a_verdict_has_the_error_the_bound_and_the_seed(self):
        run = self.succeed("gemv.q4_k.k256.n40.w4", "--verify", "--emulate", "--seed", "5")
        self.assertRegex(run.stdout, r"^gemv\.q4_k\.k256\.n40\.w4: ok, relative error \S+, bound "
                                     r"5e-06; emulation on this CPU, seed 5\n$")
        self.assertEqual(run.stderr, "")

    def test_bits_that_must_be_the_same_are(self):
        run = self.succeed("retile", "q8_0", "k=64", "n=20", "--verify", "--emulate")
        self.assertIn("ok, the same bits as the oracle's", run.stdout)

    def test_attention_looks_back_from_a_position(self):
        run = self.succeed("attention.f16.h4.kvh2.d64.w4.s3.scale125e-3", "--verify", "--emulate",
                           "--position", "77")
        self.assertIn(" at 77: ok", run.stdout)

    def test_every_kernel_of_a_model(self):
        path = self.folder / "tiny.gguf"
        path.write_bytes(tiny_model(changes=FUSIBLE, matrices=Q8_0).data)
        run = self.succeed("--model", path, "--verify", "--emulate", "--kv", "f16", "--position",
                           "20", "--chunk", "8")
        self.assertRegex(run.stderr, r"[1-9]\d* as their oracles, 0 wrong, 0 skipped, 0 failed")
        for kernel in ("matvec.", "attend.", "sample.", "matmul.", "attend_tokens."):
            self.assertIn(f"\n{kernel}", "\n" + run.stdout)


class CommandLinesThatMakeNoSense(DumpPtxTest):
    def test_they_are_refused_with_a_sentence(self):
        for words, arguments in (
                (["no kernel"], []),
                (["gemw", "gemv"], ["gemw", "q4_k"]),
                (["q4_z", "q4_k"], ["gemv", "q4_z"]),
                (["widgets", "warps"], ["gemv", "q4_k", "widgets=1"]),
                (["many", "warps"], ["gemv", "q4_k", "warps=many"]),
                (["warps"], ["gemv", "q4_k", "k=4096", "n=14336", "warps"]),
                (["k is 100", "256"], ["gemv", "q4_k", "k=100", "n=8"]),
                (["zz9"], ["gemv.q4_k.zz9"]),
                (["99999999999999999999"], ["gemv.q4_k.k99999999999999999999"]),
                (["sm_1", "sm_90a"], [KEY, "--target", "sm_1"]),
                (["mlir", "nvrtc"], [KEY, "--route", "mlir"]),
                (["--frobnicate"], [KEY, "--frobnicate"]),
                (["--out"], ["--all"]),
                (["exclude"], [KEY, "--list"]),
                (["--assemble"], [KEY, "--source", "--assemble"]),
                (["--model"], [KEY, "--persistent"]),
                (["--verify", "--out"], [KEY, "--verify", "--out", "x"]),
                (["--verify"], [KEY, "--emulate"]),
                (["--position"], [KEY, "--verify", "--position", "-1"]),
                (["--context"], ["--model", "x", "--context", "0"]),
                (["f16"], ["--model", "x", "--kv", "q4_0"])):
            with self.subTest(arguments=arguments):
                self.refuse(words, *arguments)


if __name__ == "__main__":
    programs.main()
