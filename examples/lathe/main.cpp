// lathe: the upkeep of the cache, model files, and what Lathe finds on this machine.
#include "examples/command_line.h"
#include "examples/lathe/commands.h"

namespace lathe::tool {

namespace {

Result<Output> run(const Options& options) {
  switch (options.command) {
    case Command::stat:
      return cache_stat(options);
    case Command::list:
      return cache_list(options);
    case Command::show:
      return cache_show(options);
    case Command::trim:
      return cache_trim(options);
    case Command::verify:
      return cache_verify(options);
    case Command::clear:
      return cache_clear(options);
    case Command::export_file:
      return cache_export(options);
    case Command::import_file:
      return cache_import(options);
    case Command::inspect:
      return inspect(options);
    case Command::convert:
      return convert(options);
    case Command::doctor:
      return doctor(options);
    case Command::variables:
      return variables(options);
  }
  return Error{Code::internal, "a command that does nothing", {}};
}

int finish(Result<Output> output) {
  Result<void> done;
  if (!output) {
    done = std::move(output).error();
  } else {
    done = command_line::print(output->text);
    if (done) command_line::say(output->word);
  }
  if (!done) command_line::print_error("lathe", done.error());
  if (!done && done.error().code == Code::cancelled) return command_line::kInterrupted;
  return done && output->good ? command_line::kSuccess : command_line::kFailure;
}

}  // namespace

}  // namespace lathe::tool

int main(int argc, char** argv) {
  lathe::command_line::open_standard_streams();
  lathe::tool::Options options;
  if (const auto status = lathe::tool::parse_options(argc, argv, options)) return *status;
  return lathe::tool::finish(lathe::tool::run(options));
}
