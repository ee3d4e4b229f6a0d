"""Holds include lines and forbidden calls to the layer picture of docs/architecture.md."""

import re

from project_tree import CPP, files, finish, includes, name, strip_comments

# layer folder -> what its quoted includes may start with. Public headers of a layer are
# lathe/<layer>/; everything else under a layer's folder is that layer's own.
QUOTED = {
    "include/lathe/c": ("lathe/c/",),
    "include/lathe/codegen": ("lathe/codegen/",),
    "include/lathe/plan": ("lathe/codegen/", "lathe/plan/"),
    "include/lathe/runtime": ("lathe/codegen/", "lathe/plan/", "lathe/runtime/"),
    "ptx_templates": ("isa/", "ops/", "ptx_templates/"),
    "codegen": ("lathe/codegen/", "codegen/", "ptx_templates/"),
    "plan": ("lathe/codegen/", "lathe/plan/", "plan/"),
    "runtime": ("lathe/", "codegen/", "plan/", "runtime/"),
    "emulation": ("lathe/codegen/", "emulation/", "isa/", "ops/"),
    "verification": ("lathe/codegen/", "verification/"),
    "examples": ("lathe/", "emulation/", "examples/", "verification/"),
    "bench": ("lathe/", "bench/", "verification/", "examples/command_line.h",
              "examples/progress_line.h", "examples/shared_options.h"),
}

# The host twins of the device functions use the formats' conversions. What the host writes for a
# persistent kernel to read has one definition.
EXTRA = {"ptx_templates/isa/host.h": ("lathe/codegen/",),
         "runtime/mega_executor.cpp": ("ptx_templates/ops/step_records.h",),
         "emulation/op_registry.cpp": ("op_headers.h", "op_list.inc"),  # generated
         "emulation/persistent.cpp": ("codegen/program_shape.h",),
         "verification/inputs.cpp": ("ptx_templates/ops/matmul_shapes.h",)}

# Back ends of other engines include the engine.
HOSTS = {"examples/ggml_backend": ("ggml", "kernel_sources.h")}

# What plan may see of codegen: its vocabulary, not its emitters.
NOT_FOR_PLAN = ("lathe/codegen/emit.h",)

# Only runtime talks to the driver.
DRIVER_HEADERS = re.compile(r"^(cuda|cuda_runtime|cuda_runtime_api|cudaTypedefs|nvrtc|nvJitLink)\.h$")

FORBIDDEN_CALLS = re.compile(
    r"(?<![\w.>])(?:std::|::)?(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror"
    r"|exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(|\bstd::(cout|cerr|clog)\b")
# The one table of variables, which has their names too.
GETENV = re.compile(r"(?<!\w)(?:secure_)?getenv\s*\(")
VARIABLE_NAME = re.compile(r'envname\s*\(\s*"')
GETENV_FILE = "runtime/environment.cpp"

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv
chrono cinttypes climits clocale cmath codecvt compare complex concepts condition_variable coroutine
csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque
exception execution filesystem format forward_list fstream functional future initializer_list iomanip
ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource mutex new
numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set
shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
strstream syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map
unordered_set utility valarray variant vector version
stdbool.h stddef.h stdint.h""".split())


def check_includes(path, layer, text, problems):
    for line, kind, target in includes(text):
        where = f"{name(path)}:{line}"
        allowed_quoted = target.startswith(
            QUOTED[layer] + EXTRA.get(name(path), ()) + HOSTS.get(name(path.parent), ())) or (
            "/" not in target and (path.parent / target).is_file())
        if kind == '"' and not allowed_quoted:
            problems.append(f'{where}: {layer}/ may not include "{target}"')
        if layer in ("plan", "include/lathe/plan") and target in NOT_FOR_PLAN:
            problems.append(f'{where}: plan uses codegen\'s vocabulary only, not "{target}"')
        if DRIVER_HEADERS.match(target) and layer != "runtime":
            problems.append(f"{where}: only runtime/ includes <{target}>")
        if kind == "<" and layer.startswith("include/") and target not in STANDARD:
            problems.append(f"{where}: a public header includes the third-party <{target}>")
        if kind == "<" and name(path).startswith("ptx_templates/ops/"):
            problems.append(f"{where}: device code is freestanding, but this includes <{target}>")


def check_calls(path, text, problems):
    stripped = strip_comments(text)
    for number, line in enumerate(stripped.splitlines(), 1):
        match = FORBIDDEN_CALLS.search(line)
        if match:
            problems.append(f"{name(path)}:{number}: the library never prints or exits: "
                            f"{match.group(1) or match.group(2)}")


def check_environment(path, text, problems):
    if name(path) == GETENV_FILE:
        return
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        if GETENV.search(line) or VARIABLE_NAME.search(line):
            problems.append(f"{name(path)}:{number}: only {GETENV_FILE} reads the environment")


def main():
    problems, checked = [], 0
    for layer in QUOTED:
        for path in files(layer, suffixes=CPP):
            text = path.read_text()
            check_includes(path, layer, text, problems)
            check_environment(path, text, problems)
            if layer not in ("examples", "bench", "ptx_templates"):
                check_calls(path, text, problems)
            checked += 1
    finish(problems, checked)


if __name__ == "__main__":
    main()
