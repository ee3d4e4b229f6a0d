// dump_ptx: the code that Lathe makes for a kernel, on any machine.
#include "examples/command_line.h"
#include "examples/dump_ptx/dump.h"
#include "examples/dump_ptx/kernels.h"
#include "examples/dump_ptx/listing.h"
#include "examples/dump_ptx/options.h"
#include "examples/dump_ptx/verdicts.h"

namespace lathe::dump_ptx {

namespace {

// A table of a whole vocabulary shows no more than its first rows, and takes up to 2 GB.
constexpr int kVerifiedRows = 4096;

Result<std::vector<KernelKey>> requested_kernels(const Options& options) {
  if (options.all) {
    Result<std::vector<KernelKey>> keys = sample_kernels();
    if (!options.verify || !keys) return keys;
    for (KernelKey& key : *keys)
      if (key.type == KernelType::embed) key.n = kVerifiedRows;
    return keys;
  }
  if (!options.model.empty()) return kernels_of_model(options.model, options.plan, options.target);
  LATHE_ASSIGN(const KernelKey key, kernel_from_words(options.words));
  return std::vector<KernelKey>{key};
}

int run(const Options& options) {
  const Compilers compilers(options.compilers);
  if (options.list) {
    const Result<void> printed = command_line::print(listing(compilers));
    if (printed) return command_line::kSuccess;
    command_line::print_error("dump_ptx", printed.error());
    return command_line::kFailure;
  }
  if (options.persistent) {
    const Result<Program> program = program_of_model(options.model, options.plan);
    if (program) return dump(*program, options, compilers);
    command_line::print_error("dump_ptx", program.error());
    return command_line::kFailure;
  }
  const Result<std::vector<KernelKey>> keys = requested_kernels(options);
  if (keys && options.verify) return verify(*keys, options);
  if (keys) return dump(*keys, options, compilers);
  command_line::print_error("dump_ptx", keys.error());
  return options.model.empty() ? command_line::kUsage : command_line::kFailure;
}

}  // namespace

}  // namespace lathe::dump_ptx

int main(int argc, char** argv) {
  lathe::command_line::open_standard_streams();
  lathe::dump_ptx::Options options;
  if (const auto status = lathe::dump_ptx::parse_options(argc, argv, options)) return *status;
  return lathe::dump_ptx::run(options);
}
