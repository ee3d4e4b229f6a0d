"""Runs decode on the CPU with a tiny model of random weights: what goes in, what comes out where,
how it ends, and command lines that make no sense."""

import json
import pathlib
import re
import signal
import struct
import subprocess
import tempfile

import programs
from tiny_model import ARRAY, BOOL, STRING, UINT32, VOCABULARY, byte_tokens, tiny_model


class DecodeTest(programs.ProgramTest):
    program = "decode"

    @classmethod
    def setUpClass(cls):
        cls.folder_owner = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder_owner.cleanup)
        cls.folder = pathlib.Path(cls.folder_owner.name)
        cls.model = cls.folder / "tiny.gguf"
        cls.model.write_bytes(tiny_model().data)
        cls.mute = cls.folder / "no_vocabulary.gguf"
        cls.mute.write_bytes(tiny_model(with_tokenizer=False).data)

    def decode(self, *arguments, model=None, **options):
        return self.succeed("-m", model or self.model, "--device", "cpu", *arguments, **options)

    def ids(self, *arguments, **options):
        return [int(word) for word in self.decode(*arguments, **options).stdout.split(",") if
                word.strip()]

    def object(self, *arguments, **options):
        return json.loads(self.decode("--json", *arguments, **options).stdout)


class Containers(DecodeTest):
    def test_a_p64_file_is_a_model_as_its_gguf_file_is(self):
        p64 = self.folder / "tiny.p64"
        subprocess.run([programs.PROGRAMS / "lathe", "convert", "-q", self.model, p64], check=True,
                       capture_output=True)
        for arguments in (["hello", "-n", "8"], ["--tokens", "1,4,7", "-n", "8"], ["--plan"]):
            self.assertEqual(self.decode(*arguments, model=p64).stdout,
                             self.decode(*arguments).stdout)


class Text(DecodeTest):
    def test_help_and_version_go_to_stdout(self):
        for option, word in (("--help", "Usage: decode"), ("--version", "decode ")):
            run = self.succeed(option)
            self.assertIn(word, run.stdout)
            self.assertEqual(run.stderr, "")

    def test_the_answer_is_stdout_and_valid_utf8_and_the_figures_are_the_last_line(self):
        run = self.decode("hello", "-n", "40", text=False)
        run.stdout.decode("utf-8")
        self.assertRegex(run.stderr.decode().splitlines()[-1],
                         r"^\d+ tokens \(.*\), [\d.]+ tokens/s, .* ms/token, .* GB/s, .*"
                         r"logits [0-9a-f]{16}, cpu on CPU")

    def test_the_prompt_comes_from_a_flag_an_argument_or_stdin(self):
        prompts = [self.object(*arguments, stdin="hello\n")["prompt_ids"] for arguments in
                   (["hello", "-n", "0"], ["-p", "hello", "-n", "0"], ["-p", "-", "-n", "0"])]
        self.assertEqual(prompts[0], prompts[1])
        self.assertEqual(prompts[0], prompts[2])

    def test_a_chat_model_gets_a_conversation_unless_raw(self):
        raw = self.object("hi", "--raw", "-n", "0")["prompt_ids"]
        chat = self.object("hi", "-n", "0")["prompt_ids"]
        system = self.object("hi", "-n", "0", "--system", "be brief")["prompt_ids"]
        self.assertEqual(len(raw), 2)
        self.assertIn(1, chat)  # <|im_start|>
        self.assertGreater(len(system), len(chat))

    def test_special_tokens_in_a_raw_prompt_are_text(self):
        self.assertNotIn(2, self.object("<|im_end|>", "--raw", "-n", "0")["prompt_ids"])

    def test_quiet_leaves_stderr_empty(self):
        self.assertEqual(self.decode("hello", "-n", "4", "--quiet").stderr, "")

    def test_a_machine_without_a_gpu_says_why_it_uses_the_cpu(self):
        for named in ([], ["--executor", "auto"]):
            run = self.succeed("-m", self.model, "hi", "-n", "1", *named)
            if " on CPU" in run.stderr.splitlines()[-1]:
                self.assertRegex(run.stderr, r"^decode: running on the CPU: \S")

    def test_json_is_one_object_with_everything(self):
        found = self.object("hello", "-n", "5")
        self.assertEqual(len(found["ids"]), 5)
        self.assertEqual(found["ending"], "max tokens")
        self.assertEqual(found["steps"], 4)
        self.assertEqual(found["report"]["executor"], "cpu")
        self.assertGreater(found["bytes_read"], 0)

    def test_a_profile_has_a_row_for_each_kind_of_step(self):
        lines = self.decode("hello", "-n", "3", "--profile").stdout.splitlines()
        self.assertRegex(lines[0], r"^step +times +us a token +share")
        labels = {line.split()[0]: line.split() for line in lines[1:-1]}
        self.assertEqual(labels["token_embd"][1], "1")
        self.assertGreater(int(labels["ffn_down"][1]), 1)
        self.assertTrue(labels["ffn_down"][-1].startswith("gemv."))
        self.assertRegex(lines[-1], r"^all +\d+\.\d\d +medians over 3 tokens")
        profile = json.loads(self.decode("hello", "-n", "3", "--profile", "--json").stdout)
        self.assertEqual({row["label"] for row in profile["steps"]}, set(labels))
        self.assertAlmostEqual(sum(row["share"] for row in profile["steps"]), 1, places=6)

    def test_plan_needs_no_prompt(self):
        self.assertIn("gemv.f32.k64.n96", self.decode("--plan").stdout)
        plan = json.loads(self.decode("--plan", "--json", "--kv", "f16").stdout)
        self.assertEqual(plan["options"]["kv"], "f16")

    def test_explain_says_what_is_chosen_and_why(self):
        lines = self.decode("--explain").stdout.splitlines()
        self.assertRegex(lines[0], r"^executor +cpu +as it was set$")
        self.assertRegex(lines[1], r"^fusion +none, weights in blocks +oracles read blocks")
        self.assertRegex("\n".join(lines), r"\ngemv\.f32\.k64\.n96\.w4 +warps 4, rows 1 +the fastest")
        told = json.loads(self.decode("--explain", "--json", "--tuning", "gemv.warps=2").stdout)
        gemvs = [choice for choice in told if choice["what"].startswith("gemv")]
        self.assertTrue(gemvs)
        for choice in gemvs:
            self.assertTrue(choice["set"])
            self.assertTrue(choice["value"].startswith("warps 2"))

    def test_a_tuning_that_nothing_takes_is_explained_and_noted(self):
        lines = self.decode("--explain", "--tuning", "matvec.stages=2").stdout.splitlines()
        self.assertRegex(lines[-1], r"^tuning +matvec\.stages=2 +changes nothing: no kernel of the "
                                    r"plan is matvec$")
        told = self.decode("hello", "-n", "1", "--tuning", "matvec.stages=2").stderr
        self.assertIn("decode: the tuning 'matvec.stages=2' changes nothing: ", told)


class Tokens(DecodeTest):
    def test_ids_go_in_and_come_out(self):
        self.assertEqual(len(self.ids("--tokens", "5,6,7", "-n", "6", model=self.mute)), 6)

    def test_what_came_out_can_be_fed_again(self):
        whole = self.ids("--tokens", "5,6,7", "-n", "6", model=self.mute)
        prompt = ",".join(map(str, [5, 6, 7] + whole[:3]))
        self.assertEqual(self.ids("--tokens", prompt, "-n", "3", model=self.mute), whole[3:])

    def test_a_stop_token_ends_the_answer(self):
        ids = self.ids("--tokens", "5,6,7", "-n", "20", model=self.mute)
        stopping = tiny_model(changes={"tokenizer.ggml.eos_token_id": (UINT32, ids[4])})
        path = self.folder / "stopping.gguf"
        path.write_bytes(stopping.data)
        found = self.object("--tokens", "5,6,7", "-n", "20", model=path)
        self.assertEqual(found["ending"], "stop token")
        self.assertEqual(found["ids"], ids[:ids.index(ids[4])])
        ahead = self.object("--tokens", "5,6,7", "-n", "20", "--ahead", "16", model=path)
        self.assertEqual((ahead["ending"], ahead["ids"]), (found["ending"], found["ids"]))

    def test_the_context_ends_the_answer(self):
        found = self.object("--tokens", "5,6,7", "-n", "-1", "--context", "8", model=self.mute)
        self.assertEqual(found["ending"], "context full")
        self.assertEqual(len(found["ids"]), 6)

    def test_running_ahead_changes_nothing_but_the_hash(self):
        for more in (["-n", "20"], ["-n", "-1", "--context", "16"], ["-n", "1"], ["-n", "0"],
                     ["-n", "20", "--temperature", "2", "--repeat-penalty", "1.3"]):
            arguments = ["--tokens", "5,6,7", *more]
            stepped = self.object(*arguments, model=self.mute)
            ahead = self.object(*arguments, "--ahead", "7", model=self.mute)
            for name in ("ids", "ending", "steps", "bytes_read"):
                self.assertEqual(stepped[name], ahead[name], f"{name} with {more}")
            self.assertIsNone(ahead["logits_xxh3_64"])

    def test_logits_has_a_vocabulary_for_each_position_fed(self):
        path = self.folder / "logits"
        ids = self.ids("--tokens", "5,6,7", "-n", "4", "--logits", path, model=self.mute)
        logits = path.read_bytes()
        self.assertEqual(len(logits), 4 * VOCABULARY * (3 + 3))
        last_of_prompt = struct.unpack_from(f"<{VOCABULARY}f", logits, 4 * VOCABULARY * 2)
        self.assertEqual(last_of_prompt.index(max(last_of_prompt)), ids[0])

    def test_the_same_run_has_the_same_hash_on_any_number_of_threads(self):
        def run(*more):
            return self.object("--tokens", "5,6,7", "-n", "8", *more, model=self.mute)
        first = run("--threads", "1")
        other = run("--threads", "2", "--logits", self.folder / "unused")
        self.assertEqual(first["logits_xxh3_64"], other["logits_xxh3_64"])
        self.assertNotEqual(first["logits_xxh3_64"], run("--kv", "f16")["logits_xxh3_64"])

    def test_a_seed_repeats_and_another_differs(self):
        def draw(seed):
            return self.ids("--tokens", "5", "-n", "20", "--temperature", "2", "--seed", seed,
                            model=self.mute)
        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_the_likeliest_token_is_what_sampling_among_one_takes(self):
        greedy = self.ids("--tokens", "5", "-n", "8", model=self.mute)
        for rule in (["--top-k", "1"], ["--min-p", "1"]):
            self.assertEqual(greedy, self.ids("--tokens", "5", "-n", "8", "--temperature", "1",
                                              *rule, model=self.mute))

    def test_a_repeat_penalty_counts_without_a_temperature(self):
        greedy = self.ids("--tokens", "5", "-n", "30", model=self.mute)
        varied = self.ids("--tokens", "5", "-n", "30", "--repeat-penalty", "10", model=self.mute)
        self.assertGreater(len(set(varied)), len(set(greedy)))


class Endings(DecodeTest):
    def test_ctrl_c_ends_with_the_last_line(self):
        run = subprocess.Popen(
            [programs.PROGRAMS / "decode", "-m", self.mute, "--device", "cpu", "--tokens", "5",
             "-n", "-1", "--context", "8192"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=programs.environment())
        self.addCleanup(run.kill)
        self.assertTrue(run.stdout.read(1))
        run.send_signal(signal.SIGINT)
        output, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130)
        self.assertTrue(output.endswith("\n"))
        self.assertRegex(said.splitlines()[-1],
                         r"^\d+ tokens \(interrupted\), .*logits [0-9a-f]{16}")

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            run = self.run_program("-m", self.model, "--device", "cpu", "hi", stdout=full,
                                   stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 1)
        self.assertIn("No space left", run.stderr)
        self.fail_to_run(["No space left"], "-m", self.mute, "--device", "cpu", "--tokens", "5",
                       "-n", "64", "--logits", "/dev/full")

    def test_failures_are_one_sentence(self):
        empty = self.folder / "empty"
        empty.write_bytes(b"")
        text = self.folder / "text"
        text.write_text("this is no model\n" * 100)
        for words, arguments in (
                (["/no/model", "No such file"], ["-m", "/no/model", "hi"]),
                (["regular file"], ["-m", self.folder, "hi"]),
                ([], ["-m", empty, "hi"]),
                ([], ["-m", text, "hi"]),
                (["no tokenizer", "--tokens"], ["-m", self.mute, "hi"]),
                (["999999", "vocabulary"], ["-m", self.model, "--tokens", "999999"]),
                (["context holds 4"], ["-m", self.model, "hello", "--context", "4"]),
                (["8192"], ["-m", self.model, "hello", "--context", "9000"]),
                (["/no/folder/x"],
                 ["-m", self.model, "hello", "--device", "cpu", "--logits", "/no/folder/x"]),
                (["that is the model"],
                 ["-m", self.model, "hello", "--device", "cpu", "--logits", self.model])):
            with self.subTest(arguments=arguments):
                self.fail_to_run(words, *arguments)

    def test_a_base_model_takes_no_system_message(self):
        path = self.folder / "base.gguf"
        path.write_bytes(tiny_model(changes={
            "tokenizer.chat_template": None,
            "tokenizer.ggml.tokens": (ARRAY, (STRING, ["<a>", "<b>", "<c>", *byte_tokens(), "th"]))
        }).data)
        self.fail_to_run(["--system"], "-m", path, "hi", "--system", "be brief")

    def test_an_empty_prompt_of_a_model_without_a_first_token_is_refused(self):
        path = self.folder / "no_first.gguf"
        path.write_bytes(tiny_model(changes={"tokenizer.ggml.add_bos_token": (BOOL, False)}).data)
        self.fail_to_run(["empty"], "-m", path, "--raw", "")

    def test_weights_that_are_not_numbers_end_in_a_sentence(self):
        path = self.folder / "nan.gguf"
        path.write_bytes(tiny_model(weight=float("nan")).data)
        run = self.fail_to_run([], "-m", path, "--device", "cpu", "--tokens", "5", "--quiet")
        self.assertRegex(run.stderr, "no logit at position 0 is a number")


class CommandLinesThatMakeNoSense(DecodeTest):
    def test_they_are_refused_with_a_sentence(self):
        model = ["-m", self.model]
        for words, arguments in (
                (["--model"], ["hi"]),
                (["prompt"], [*model]),
                (["--prompt"], [*model, "hi", "-p", "hi"]),
                (["--tokens"], [*model, "hi", "--tokens", "1"]),
                (["--raw"], [*model, "hi", "--raw", "--system", "x"]),
                (["'x'", "token id"], [*model, "--tokens", "1,x"]),
                (["token id"], [*model, "--tokens", ""]),
                (["'-1'"], [*model, "--tokens", "1,-1"]),
                (["99999999999"], [*model, "--tokens", "99999999999"]),
                (["--device"], [*model, "hi", "--device", "tpu"]),
                (["giga", "executor"], [*model, "hi", "--executor", "giga"]),
                (["graph", "cpu"], [*model, "hi", "--executor", "graph", "--device", "cpu"]),
                (["cpu", "cuda"], [*model, "hi", "--executor", "cpu", "--device", "cuda"]),
                (["--kv"], [*model, "hi", "--kv", "q4_k"]),
                (["mlir"], [*model, "hi", "--route", "llvm,mlir"]),
                (["--max-tokens"], [*model, "hi", "-n", "-2"]),
                (["temperature"], [*model, "hi", "--temperature", "-1"]),
                (["top-p"], [*model, "hi", "--top-p", "2"]),
                (["--seed"], [*model, "hi", "--seed", "dice"]),
                (["top-k", "64"], [*model, "hi", "--top-k", "65", "--temperature", "1"]),
                (["--ahead"], [*model, "hi", "--ahead", "4", "--logits", "x"]),
                (["--ahead"], [*model, "hi", "--ahead", "0"]),
                (["--threads"], [*model, "hi", "--threads", "0"]),
                (["--profile", "mega"], [*model, "hi", "--profile", "--executor", "mega"]),
                (["--parity", "CPU"], [*model, "hi", "--parity", "--device", "cpu"]),
                (["--parity", "--profile"], [*model, "hi", "--parity", "--profile"]),
                (["--plan", "--explain"], [*model, "--plan", "--explain"]),
                (["--cache-dir"], [*model, "hi", "--no-cache", "--cache-dir", "x"]),
                (["--frobnicate"], [*model, "hi", "--frobnicate"])):
            with self.subTest(arguments=arguments):
                self.refuse(words, *arguments)


if __name__ == "__main__":
    programs.main()
