// Owns the commands of lathe, their options and their help.
#include "examples/lathe/options.h"

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::tool {

namespace {

constexpr const char* kDescription =
    "Looks after the cache of compiled kernels, inspects and converts model files, and says what "
    "Lathe finds on this machine.";

constexpr const char* kExamples =
    R"(Kernels that were compiled once are kept on disk, so that the next start needs no compiler.
  lathe cache stat                       how much there is, and where
  lathe cache list                       each kernel, with its target and compiler
  lathe cache show gemv.q4_k.k4096.n14336.w4 --ptx     its PTX, as it was assembled
  lathe cache verify --remove            read and check everything; drop what is damaged

A filled cache goes to another machine, or into an image, as one file:
  lathe cache export kernels.lathe
  lathe cache import kernels.lathe --dir /opt/lathe
  LATHE_CACHE=read-only LATHE_CACHE_DIR=/opt/lathe decode ...

What is in a model file, GGUF or P64, and the file in the other container:
  lathe inspect model.gguf --context 8192
  lathe inspect model.p64 --integrity full
  lathe convert model.gguf model.p64

What to paste into a bug report, and every variable that can be set:
  lathe doctor
  lathe variables

Results go to stdout, everything else to stderr.
Exit status: 0 done; 1 failed, or something is wrong (verify: a damaged entry that was not removed;
doctor: something that was asked for by name is not there); 2 the command line makes no sense.)";

CLI::App* add_command(CLI::App& parent, const char* name, const char* description, Command command,
                      Options& options) {
  CLI::App* added = parent.add_subcommand(name, description);
  added->callback([&options, command] { options.command = command; });
  return added;
}

void add_json(CLI::App* command, Options& options) {
  command->add_flag("--json", options.json, "Print JSON");
}

void add_size(CLI::App* command, const char* name, Options& options) {
  command
      ->add_option(name, options.bytes, "At most so much, as 200M or 2G (default: LATHE_CACHE_CAP)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->type_name("SIZE");
}

void add_cache_commands(CLI::App& app, Options& options) {
  CLI::App* cache = app.add_subcommand("cache", "The kernels kept between runs");
  cache->require_subcommand(1);
  add_json(add_command(*cache, "stat", "How many entries there are, their size, and where",
                       Command::stat, options),
           options);
  add_json(add_command(*cache, "list", "A line for each entry: name, size, last read, what it is",
                       Command::list, options),
           options);
  CLI::App* show = add_command(*cache, "show", "All about one entry: launch shape, PTX, cubin",
                               Command::show, options);
  show->add_option("key", options.key, "A kernel's key, or the beginning of a name in the list")
      ->required()
      ->type_name("KEY");
  show->add_flag("--ptx", options.ptx, "Print the PTX that it was assembled from, and only that");
  show->add_option("--cubin", options.cubin,
                   "Write the machine code there; cuobjdump -sass reads it")
      ->type_name("FILE");
  CLI::App* trim = add_command(*cache, "trim", "Remove the entries that were read longest ago",
                               Command::trim, options);
  add_size(trim, "size", options);
  add_command(*cache, "verify", "Read and check every entry", Command::verify, options)
      ->add_flag("--remove", options.remove, "Remove those that are damaged");
  add_command(*cache, "clear", "Remove every entry, and no other file", Command::clear, options);
  add_command(*cache, "export", "Write all entries to one file", Command::export_file, options)
      ->add_option("file", options.file, "The file to be written")
      ->required()
      ->type_name("FILE");
  CLI::App* import = add_command(
      *cache, "import",
      "Add the entries of an exported file. Its code will run on the GPU in your name:\n"
      "import what you trust.",
      Command::import_file, options);
  import->add_option("file", options.file, "What `lathe cache export` wrote")
      ->required()
      ->type_name("FILE");
  add_size(import, "--cap", options);
  for (CLI::App* command : cache->get_subcommands({})) {
    command
        ->add_option("--dir", options.directory,
                     "The cache's folder (default: LATHE_CACHE_DIR, else ~/.cache/lathe)")
        ->type_name("DIR");
  }
}

CLI::Option* add_model(CLI::App* command, Options& options) {
  return command->add_option("model", options.file, "A GGUF or P64 file")
      ->required()
      ->type_name("FILE");
}

void add_model_commands(CLI::App& app, Options& options) {
  CLI::App* inspect =
      add_command(app, "inspect", "What is in a model file: container, sizes, formats, KV cache",
                  Command::inspect, options);
  add_model(inspect, options);
  inspect
      ->add_option("--integrity", options.integrity,
                   "What of a P64 file is held to its checksums: metadata, full (all of it) or\n"
                   "structure (nothing)")
      ->type_name("NAME");
  inspect->add_option("-c,--context", options.context, "Positions of the KV cache")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  inspect->add_option("--kv", options.kv, "Its format: f16, f32 or q8_0")->type_name("FORMAT");
  inspect->add_flag("--tensors", options.tensors, "A line for each tensor too");
  add_json(inspect, options);
  CLI::App* convert = add_command(
      app, "convert", "Write a GGUF file as P64, or a P64 file as GGUF: the same bytes of tensors",
      Command::convert, options);
  add_model(convert, options);
  convert->add_option("target", options.target, "The file to be written; one that is there goes")
      ->required()
      ->type_name("FILE");
  convert->add_option("--page", options.page_bytes, "P64: what each layer's bytes are aligned to")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  convert
      ->add_option("--weights", options.weights,
                   "P64: as_stored, q4_k_soa (q4_k with f16 scales) or ternary_ffn")
      ->type_name("NAME");
  convert->add_flag("-q,--quiet", options.quiet, "No progress on stderr");
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "lathe");
  app.footer(kExamples);
  app.set_version_flag("--version", command_line::version("lathe"));
  app.require_subcommand(1);
  add_cache_commands(app, options);
  add_model_commands(app, options);
  CLI::App* doctor = add_command(
      app, "doctor", "Versions, libraries and where they came from, GPUs, the cache, variables",
      Command::doctor, options);
  add_json(doctor, options);
  command_line::add_compiler_options(*doctor, options.compilers);
  add_command(app, "variables", "Every environment variable: its values, its default, what it does",
              Command::variables, options)
      ->add_flag("--markdown", options.markdown, "As the tables of docs/environment.md");
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::tool
