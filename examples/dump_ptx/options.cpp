// Owns the options of dump_ptx, their help and their defaults.
#include "examples/dump_ptx/options.h"

#include <fmt/format.h>

#include "examples/command_line.h"
#include "examples/shared_options.h"
#include "verification/random.h"

namespace lathe::dump_ptx {

namespace {

constexpr const char* kDescription =
    R"(Prints the PTX of a kernel: the code for exactly one shape. Needs no GPU and no driver.)";

constexpr const char* kExamples =
    R"(A kernel is named by its key, or by its parts: kernel, format, then field=value. A key
followed by field=value is that kernel with fields changed.
  dump_ptx gemv.q4_k.k4096.n14336.w4
  dump_ptx gemv q4_k k=4096 n=14336 warps=4
  dump_ptx gemv.q4_k.k4096.n14336.w4 warps=8

What there is: kernels, formats, fields, targets, routes and which of them work here.
  dump_ptx --list

Another target, one route, and what the assembler makes of it:
  dump_ptx attention f16 heads=32 kv_heads=8 head_dim=128 splits=16 scale=0.0884 \
      --target sm_120a --route nvrtc --assemble >attention.ptx
The CUDA C++ text that the nvrtc route compiles:
  dump_ptx rms_norm f32 k=4096 n=1 epsilon=1e-5 --source

Every kernel of a model file, a file each; each kernel of the table in each format:
  dump_ptx --model model.gguf --out kernels
  dump_ptx --model model.gguf --persistent --assemble >persistent.ptx
  dump_ptx --all --out kernels --assemble

Run a kernel, and compare what it computes with its oracle; each kernel of the table:
  dump_ptx gemv.q4_k.k4096.n14336.w4 --verify
  dump_ptx --all --verify

PTX, source, verdicts and the list go to stdout, everything else to stderr.
Exit status: 0 done, 1 a kernel could not be made or computes something else than its oracle,
2 the command line makes no sense.)";

void add_kernel_options(CLI::App& app, Options& options) {
  app.add_option("kernel", options.words,
                 "A key (gemv.q4_k.k4096.n14336.w4), or kernel, format and field=value ...")
      ->type_name("");
  app.add_option("-m,--model", options.model, "Every kernel of the plan for this GGUF or P64 file")
      ->type_name("FILE");
  app.add_flag("--persistent", options.persistent,
               "With --model: the one kernel for whole tokens that the mega executor launches");
  command_line::add_plan_options(app, options.plan);
  app.add_flag("--all", options.all,
               "Each kernel in each format, of an 8B model's shape; needs --out\nor --verify");
  app.add_flag("-l,--list", options.list, "Print what can be asked for");
}

void add_output_options(CLI::App& app, Options& options) {
  app.add_option("-o,--out", options.out, "Write a file for each kernel, KEY.ptx, to this folder")
      ->type_name("DIR");
  app.add_flag("--source", options.source, "Print CUDA C++ text, not PTX: what NVRTC would get");
  app.add_flag("--assemble", options.assemble,
               "Run ptxas: registers, spills, shared memory and code size, on stderr");
  app.add_option("--ptxas", options.ptxas,
                 "The assembler (default: that of the CUDA toolkit, else on PATH)")
      ->type_name("FILE");
}

void add_verify_options(CLI::App& app, Options& options) {
  CLI::Option* verify = app.add_flag(
      "--verify", options.verify,
      "Run the kernel on random inputs and compare with its oracle in double precision:\n"
      "on the first GPU, or by emulation where there is none");
  app.add_flag("--emulate", options.emulate, "With --verify: by emulation, no GPU")->needs(verify);
  app.add_option("--position", options.position,
                 fmt::format("With --verify: the position that attention looks back from, or of\n"
                             "a chunk's first token (default {})",
                             options.position))
      ->needs(verify)
      ->check(CLI::Range(0, 1 << 24))
      ->type_name("N");
  app.add_option("--seed", options.seed, "With --verify: of the inputs (default: a fresh one)")
      ->needs(verify)
      ->type_name("N");
}

// What CLI11 cannot express: exactly one of four ways to say which kernels.
std::optional<std::string> contradiction(const Options& options) {
  const int ways = !options.words.empty() + !options.model.empty() + options.all + options.list;
  if (ways == 0) return "no kernel is named; name one, or give --model, --all or --list";
  if (ways > 1) return "a kernel, --model, --all and --list exclude each other";
  if (options.all && options.out.empty() && !options.verify)
    return "--all needs --out DIR, or --verify";
  if (options.verify && (options.list || options.persistent || options.source || options.assemble ||
                         !options.out.empty()))
    return "--verify runs kernels: --list, --persistent, --source, --assemble and --out do not "
           "go with it";
  if (options.persistent && options.model.empty()) return "--persistent needs --model FILE";
  if (options.source && options.assemble)
    return "--source is not PTX: --assemble cannot go with it";
  return std::nullopt;
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "dump_ptx");
  app.footer(kExamples);
  app.set_version_flag("--version", command_line::version("dump_ptx"));
  std::string target = "sm_90a";
  add_kernel_options(app, options);
  app.add_option("-t,--target", target,
                 "The chip, such as sm_80, sm_90a or sm_120a (default sm_90a)")
      ->type_name("TARGET");
  command_line::add_route_option(app, options.routes);
  add_output_options(app, options);
  add_verify_options(app, options);
  command_line::add_compiler_options(app, options.compilers);
  if (const auto status = command_line::parse(app, argc, argv)) return status;

  if (const auto problem = contradiction(options)) {
    command_line::print_usage_error("dump_ptx", *problem);
    return command_line::kUsage;
  }
  const Result<Target> known = parse_target(target);
  if (!known) {
    command_line::print_usage_error("dump_ptx", known.error().message);
    return command_line::kUsage;
  }
  options.target = *known;
  if (options.verify && app.count("--seed") == 0) options.seed = verification::fresh_seed();
  if (options.routes.empty())
    options.routes.assign(default_routes().begin(), default_routes().end());
  return std::nullopt;
}

}  // namespace lathe::dump_ptx
