// Owns the text route: which numbers of a key the PTX templates of ptx_templates/ptx ask for.
#include <fmt/format.h>

#include <bit>
#include <string>
#include <vector>

#include "codegen/device_sources.h"
#include "codegen/routes.h"
#include "codegen/template_filler.h"

namespace lathe {
namespace {

using Arguments = std::vector<TemplateArgument>;

// What every template asks for.
Arguments common_arguments(const KernelKey& key, const Target& target) {
  return {{"version", target.ptx_version()},
          {"target", target.name()},
          {"entry", key.symbol()},
          {"threads", std::int64_t{row(key.type).geometry(key).threads}},
          {"residual", std::int64_t{key.residual}}};
}

// `round` is the number of values along k that the template takes per turn of its loop.
void add_gemv(Arguments& arguments, const KernelKey& key, int round) {
  arguments.push_back({"n", key.n});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"row_bytes", row_bytes(key.format, key.k)});
  arguments.push_back({"bias", std::int64_t{key.bias}});
  arguments.push_back({"guarded", std::int64_t{key.k % round != 0}});
}

void add_gemv_q4_k(Arguments& arguments, const KernelKey& key, const Target& target) {
  constexpr int kChunk = 8192;  // values of x in shared memory, as geometry() counts them
  add_gemv(arguments, key, 2048);
  arguments.push_back({"k", key.k});
  arguments.push_back({"chunked", std::int64_t{key.k > kChunk}});
  // Weights are read once per token and need not displace x. PTX has words for that since 7.4.
  arguments.push_back({"no_allocate", target.ptx >= 74 ? ".L1::no_allocate" : ""});
}

void add_gemv_blocks(Arguments& arguments, const KernelKey& key, int round) {
  add_gemv(arguments, key, round);
  arguments.push_back({"blocks", key.k / row(key.format).block});
}

void add_rms_norm(Arguments& arguments, const KernelKey& key) {
  const int group = key.k % 4 == 0 ? 4 : 1;  // values; every row starts on 4 * group bytes
  const int groups = key.k / group, threads = key.warps * 32;
  const auto bits = [](float value) { return std::int64_t{std::bit_cast<std::uint32_t>(value)}; };
  arguments.push_back({"k", key.k});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"several_warps", std::int64_t{key.warps > 1}});
  arguments.push_back({"fours", std::int64_t{group == 4}});
  arguments.push_back({"last_of_group", group - 1});
  arguments.push_back({"groups", groups});
  arguments.push_back({"group_bytes", group * 4});
  arguments.push_back({"steps", (groups + threads - 1) / threads});
  arguments.push_back({"k_bits", bits(static_cast<float>(key.k))});
  arguments.push_back({"epsilon_bits", bits(key.epsilon)});
}

}  // namespace

Result<std::string> template_ptx(const KernelKey& key, const Target& target) {
  const char* stem = row(key.type).text_template(key);
  if (!stem)
    return Error{Code::not_eligible, fmt::format("no PTX text template covers {}", key.text()), {}};
  const std::string name = fmt::format("ptx/{}.ptx", stem);
  const std::string_view text = device_source(name);
  if (text.empty())
    return Error{Code::internal, fmt::format("the template {} is not in the library", name), {}};
  Arguments arguments = common_arguments(key, target);
  if (key.type == KernelType::rms_norm) {
    add_rms_norm(arguments, key);
  } else if (key.format == Format::q4_k) {
    add_gemv_q4_k(arguments, key, target);
  } else {
    add_gemv_blocks(arguments, key, key.format == Format::q6_k ? 1024 : 512);
  }
  return fill_template(name, text, arguments);
}

}  // namespace lathe
