"""Runs lathe on caches that are filled, damaged, missing or somebody else's, and on model files, and
holds the page on environment variables to the table that it prints."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import programs
from tiny_model import F32, GgufWriter, HEADS, HIDDEN, KV_HEADS, LAYERS, tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LatheTest(programs.ProgramTest):
    program = "lathe"
    extra_environment = {"ASAN_OPTIONS": "detect_leaks=0"}  # as in dump_ptx_test.py

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"
        run = subprocess.run([os.environ["LATHE_FILLED_CACHE"], self.cache], check=True,
                             capture_output=True, text=True)
        self.keys = run.stdout.split()

    def cache_command(self, *arguments, **options):
        return self.succeed("cache", *arguments, "--dir", self.cache, **options).stdout

    def entries(self):
        return sorted(path for path in self.cache.glob("v1/??/*"))

    def damage(self):
        with open(self.entries()[0], "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))


class Cache(LatheTest):
    def test_stat_has_figures_with_units(self):
        text = self.cache_command("stat")
        self.assertIn("6: 3 kernels, 3 cubins, 0 others", text)
        self.assertRegex(text, r"size +[\d.]+ (bytes|KiB) of 512.0 MiB")
        state = json.loads(self.cache_command("stat", "--json"))
        self.assertEqual(state["entries"], 6)
        self.assertEqual(state["bytes"], sum(path.stat().st_size for path in self.entries()))

    def test_the_environment_names_the_cache_and_its_cap(self):
        env = {"LATHE_CACHE_DIR": str(self.cache), "LATHE_CACHE_CAP": "2M",
               "LATHE_CACHE": "read-only"}
        text = self.succeed("cache", "stat", env=env).stdout
        self.assertIn(f"folder      {self.cache}\nmode        read-only\n", text)
        self.assertIn("of 2.0 MiB", text)

    def test_list_and_show(self):
        text = self.cache_command("list")
        self.assertEqual(len(text.splitlines()), 6)
        for key in self.keys:
            self.assertIn(key, text)
            self.assertEqual(self.cache_command("show", key, "--ptx"), key)  # the fake tool chain's
        facts = self.cache_command("show", self.keys[0])
        for word in (self.keys[0], "sm_90a", "text (fake text)", "threads", "fake assembler 1.0"):
            self.assertIn(word, facts)
        name = next(entry["name"] for entry in json.loads(self.cache_command("list", "--json"))
                    if entry["subject"] == self.keys[1])
        self.assertIn(self.keys[1], self.cache_command("show", name[:8]))
        cubin = self.folder / "cubin"
        self.cache_command("show", self.keys[0], "--cubin", cubin)
        self.assertIn(self.keys[0].encode(), cubin.read_bytes())
        self.fail_to_run(["no entry", "gemv.x"], "cache", "show", "gemv.x", "--dir", self.cache)

    def test_verify_tells_damage_by_its_status(self):
        self.assertIn("6 entries", self.cache_command("verify"))
        self.damage()
        run = self.run_program("cache", "verify", "--dir", self.cache)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"{self.entries()[0]}: its checksum is wrong\n", run.stdout)
        self.assertEqual(len(self.entries()), 6)
        self.assertIn("; removed", self.cache_command("verify", "--remove"))
        self.assertEqual(len(self.entries()), 5)

    def test_trim_and_clear(self):
        (self.cache / "v1/00").mkdir(exist_ok=True)
        (self.cache / "v1/00/mine").write_text("not an entry")
        self.assertIn("removed ", self.cache_command("trim", "1K"))
        self.assertLessEqual(sum(path.stat().st_size for path in self.entries()
                                 if path.name != "mine"), 1024)
        self.cache_command("clear")
        self.assertEqual([path.name for path in self.entries()], ["mine"])

    def test_an_export_fills_another_cache(self):
        file, other = self.folder / "file", self.folder / "other"
        self.assertIn("6 entries", self.cache_command("export", file))
        run = self.succeed("cache", "import", file, "--dir", other)
        self.assertIn("added 6 entries", run.stdout)
        self.assertIn("6: 3 kernels", self.succeed("cache", "stat", "--dir", other).stdout)
        file.write_bytes(file.read_bytes()[:-1])
        self.fail_to_run([str(file), "bytes"], "cache", "import", file, "--dir", other)

    def test_a_missing_or_refused_cache_is_a_failure(self):
        for command in (["stat"], ["list"], ["show", "x"], ["trim"], ["verify"], ["clear"],
                        ["export", self.folder / "x"]):
            self.fail_to_run(["/no/cache"], "cache", *command, "--dir", "/no/cache")
        self.cache.chmod(0o777)
        self.fail_to_run(["Others may write", "chmod 700"], "cache", "stat", "--dir", self.cache)


class Models(LatheTest):
    def setUp(self):
        super().setUp()
        self.gguf = self.folder / "tiny.gguf"
        self.gguf.write_bytes(tiny_model().data)
        self.p64 = self.folder / "tiny.p64"

    def inspect(self, *arguments):
        return json.loads(self.succeed("inspect", *arguments, "--json").stdout)

    def test_there_and_back_is_the_same_file(self):
        run = self.succeed("convert", self.gguf, self.p64)
        self.assertEqual((run.stdout, run.stderr), ("", f"{self.p64} written, P64\n"))
        back = self.folder / "back.gguf"
        self.succeed("convert", self.p64, back)
        self.assertEqual(back.read_bytes(), self.gguf.read_bytes())

    def test_inspect_says_the_same_of_both_containers(self):
        self.succeed("convert", self.gguf, self.p64)
        gguf = self.inspect(self.gguf, "-c", "100", "--tensors")
        p64 = self.inspect(self.p64, "-c", "100", "--tensors", "--integrity", "full")
        self.assertEqual((gguf["container"], p64["container"]), ("GGUF", "P64"))
        self.assertEqual((gguf["version"], p64["version"], p64["data_offset"]), (3, 4, 0))
        self.assertEqual(gguf["kv_bytes"], 2 * LAYERS * 100 * HIDDEN // HEADS * KV_HEADS * 2)
        for same in ("tensors", "tensor_bytes", "largest_tensor", "types", "layers", "heads",
                     "kv_heads", "head_dim", "vocabulary", "kv_bytes", "refusal"):
            self.assertEqual(gguf[same], p64[same], same)
        self.assertEqual(gguf["refusal"], "")
        sizes = [{tensor["name"]: tensor["bytes"] for tensor in found["tensor_list"]}
                 for found in (gguf, p64)]
        self.assertEqual(*sizes)
        text = self.succeed("inspect", self.p64).stdout
        self.assertIn("P64 version 4", text)
        self.assertIn("decodes         yes", text)

    def test_other_weights_are_named(self):
        self.succeed("convert", self.gguf, self.p64, "--weights", "ternary_ffn")
        found = self.inspect(self.p64)
        counts = {entry["name"]: entry["tensors"] for entry in found["types"]}
        self.assertEqual(counts["ternary_base3"], 3 * LAYERS)
        self.fail_to_run(["stored as ternary_base3"], "convert", self.p64, self.folder / "back.gguf")
        self.fail_to_run(["no kind of weights"], "convert", self.gguf, self.p64, "--weights", "f17")

    def test_damage_is_found_as_far_as_it_is_looked_for(self):
        self.succeed("convert", self.gguf, self.p64)
        data = bytearray(self.p64.read_bytes())
        data[-100] ^= 1
        self.p64.write_bytes(data)
        self.succeed("inspect", self.p64)
        self.fail_to_run(["is damaged", "CRC-32C"], "inspect", self.p64, "--integrity", "full")
        self.fail_to_run(["is damaged"], "convert", self.p64, self.folder / "back.gguf")
        data[70] ^= 1
        self.p64.write_bytes(data)
        self.fail_to_run(["before the tensors is damaged"], "inspect", self.p64)
        self.fail_to_run(["no integrity"], "inspect", self.p64, "--integrity", "most")

    def test_an_interrupted_conversion_leaves_nothing(self):
        large = GgufWriter()
        for name, form, value in (("magic", "<I", 0x46554747), ("version", "<I", 3),
                                  ("tensors", "<Q", 1), ("values", "<Q", 0)):
            large.field(name, form, value)
        large.string("name", "x")
        for name, form, value in (("rank", "<I", 1), ("extent", "<Q", 1 << 27), ("type", "<I", F32),
                                  ("offset", "<Q", 0)):
            large.field(name, form, value)
        large.pad()
        self.gguf.write_bytes(large.data)
        os.truncate(self.gguf, len(large.data) + (4 << 27))  # a hole: 512 MiB of zeros
        with subprocess.Popen([programs.PROGRAMS / "lathe", "convert", self.gguf, self.p64],
                              stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not list(self.folder.glob("*.part")):
                pass
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 130, stderr)
        self.assert_one_sentence(stderr, "convert")
        self.assertIn("cancelled", stderr)
        self.assertEqual(sorted(self.folder.iterdir()), sorted([self.cache, self.gguf]))

    def test_what_cannot_be_written_is_a_failure_and_leaves_nothing(self):
        self.fail_to_run(["none", "No such file"], "convert", self.gguf, self.folder / "none" / "x")
        self.fail_to_run(["is to be converted"], "convert", self.gguf, self.gguf)
        self.fail_to_run(["pages of 1000 bytes"], "convert", self.gguf, self.p64, "--page", "1000")
        self.assertEqual(sorted(self.folder.iterdir()), sorted([self.cache, self.gguf]))


class Doctor(LatheTest):
    def test_it_names_libraries_cache_and_variables(self):
        env = {"LATHE_CACHE_DIR": str(self.cache)}
        text = self.succeed("doctor", env=env).stdout
        for word in ("driver", "nvrtc", "llvm", "nvJitLink", "GPUs:", str(self.cache),
                     "on, 6 entries", f"LATHE_CACHE_DIR={self.cache}", "Problems: none"):
            self.assertIn(word, text)
        report = json.loads(self.succeed("doctor", "--json", env=env).stdout)
        self.assertEqual(report["cache"]["entries"], 6)
        self.assertEqual({library["name"] for library in report["libraries"]},
                         {"driver", "nvrtc", "llvm", "nvJitLink"})
        for library in report["libraries"]:
            self.assertTrue(library["problem"] or pathlib.Path(library["path"]).is_file(), library)

    def test_what_was_asked_for_and_is_not_there_is_a_problem(self):
        for env, word in (({"LATHE_LLVM": "/no/such/library"}, "/no/such/library"),
                          ({"LATHE_CACHE": "sometimes"}, '"sometimes"'),
                          ({"LATHE_CACHE_CAP": "much"}, '"much"'),
                          ({"LATHE_CACHE_DIR": "/dev/null"}, "/dev/null")):
            run = self.run_program("doctor", env={"LATHE_CACHE_DIR": str(self.cache), **env})
            self.assertEqual(run.returncode, 1, env)
            self.assertIn(word, run.stdout.split("Problems:")[1])

    def test_a_cache_that_is_off_or_new_is_no_problem(self):
        for env, word in (({"LATHE_CACHE": "off"}, "off, as the environment says"),
                          ({"LATHE_CACHE_DIR": ""}, "off, as the environment says"),
                          ({"LATHE_CACHE_DIR": str(self.folder / "new")}, "not made yet")):
            self.assertIn(word, self.succeed("doctor", env=env).stdout)
        self.assertFalse((self.folder / "new").exists())


class Variables(LatheTest):
    def test_the_page_of_the_documentation_is_the_table(self):
        page = (ROOT / "docs/environment.md").read_text()
        tables = self.succeed("variables", "--markdown").stdout
        self.assertEqual(page[page.index("## "):], tables)

    def test_every_variable_of_the_library_is_in_the_text(self):
        names = re.findall(r"^\| `(\w+)`", self.succeed("variables", "--markdown").stdout, re.M)
        self.assertIn("LATHE_LOG", names)
        text = self.succeed("variables").stdout
        for name in names:
            self.assertIn(f"  {name} ", text)


class CommandLinesThatMakeNoSense(LatheTest):
    def test_they_are_refused_with_a_sentence(self):
        for words, arguments in ((["subcommand"], []), (["subcommand"], ["cache"]),
                                 (["key"], ["cache", "show"]),
                                 (["size"], ["cache", "trim", "much"]),
                                 (["--frobnicate"], ["doctor", "--frobnicate"])):
            with self.subTest(arguments=arguments):
                self.refuse(words, *arguments)

    def test_help_teaches(self):
        for arguments in ([], ["cache"], ["cache", "show"], ["doctor"], ["inspect"],
                          ["convert"]):
            text = self.succeed(*arguments, "--help").stdout
            for word in ("Usage: lathe", "Exit status: 0", "lathe cache export"):
                self.assertIn(word, text)


if __name__ == "__main__":
    programs.main()
