// Owns which kernels a command line means.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lathe/library.h"

namespace lathe::dump_ptx {

// From a key's text or from kernel and format, each followed by field=value.
Result<KernelKey> kernel_from_words(std::span<const std::string> words);

// Each kernel of the table in each format it takes, in the shape it has in an 8B llama.
Result<std::vector<KernelKey>> sample_kernels();

// Of the plan that a session on the target would make.
Result<std::vector<KernelKey>> kernels_of_model(const std::string& path, PlanOptions options,
                                                const Target& target);
// The persistent kernel of the plan with five kernels a layer.
Result<Program> program_of_model(const std::string& path, PlanOptions options);

}  // namespace lathe::dump_ptx
