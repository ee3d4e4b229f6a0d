// Owns the text of --list, made from the tables of the library.
#include "examples/dump_ptx/listing.h"

#include <fmt/format.h>

#include <iterator>

namespace lathe::dump_ptx {

namespace {

std::string kernels_text() {
  std::string text = "Kernels, and the fields of each:\n";
  for (const KernelRow& kernel : kernel_table())
    text += fmt::format("  {:<16} {}\n{:<19}{}\n", kernel.name, kernel.summary, "", kernel.fields);
  return text;
}

std::string formats_text() {
  std::string text = "Formats:\n";
  for (const FormatRow& format : formats())
    text += fmt::format("  {:<16} {:>3} bytes for {:>3} value{}\n", format.name, format.bytes,
                        format.block, format.block == 1 ? "" : "s");
  return text;
}

std::string values_of(const KeyField& field) {
  static constexpr KernelKey defaults;
  if (field.integer) return fmt::format("an integer, {} by default", defaults.*field.integer);
  if (field.real) return fmt::format("a number, {} by default", defaults.*field.real);
  if (field.flag) return "0 or 1, 0 by default";
  return "the first by default";
}

std::string fields_text() {
  std::string text = "Fields, as field=value, and their short names in a key:\n";
  for (const KeyField& field : key_fields())
    text += fmt::format("  {:<10} {:<5} {}; {}\n", field.name, field.tag, field.meaning,
                        values_of(field));
  return text;
}

std::string targets_text() {
  std::string text = "Targets:\n ";
  for (int compute = 80; compute < 200; ++compute) {
    for (const char* suffix : {"", "a"}) {
      if (const auto target = parse_target(fmt::format("sm_{}{}", compute, suffix)))
        text += " " + target->name();
    }
  }
  return text + "\n";
}

std::string routes_text(const Compilers& compilers) {
  std::string text = "Routes, in the default order:\n";
  for (Route route : default_routes()) {
    const Result<std::string> version = compilers.version(route);
    text += fmt::format(
        "  {:<16} {}\n", route_name(route),
        version ? "available: " + *version : "not available: " + version.error().message);
  }
  return text;
}

}  // namespace

std::string listing(const Compilers& compilers) {
  return kernels_text() + "\n" + formats_text() + "\n" + fields_text() + "\n" + targets_text() +
         "\n" + routes_text(compilers);
}

}  // namespace lathe::dump_ptx
