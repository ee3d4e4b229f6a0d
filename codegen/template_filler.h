// Owns the language of PTX templates: named holes, conditions and repetition. docs/ptx-templates.md
// describes it.
//
// A pure function of its arguments: threads may fill the same template at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "lathe/codegen/result.h"

namespace lathe {

struct TemplateArgument {
  std::string_view name;
  std::variant<std::int64_t, std::string> value;
};

// The template's text with every hole filled. Refuses, with "name:line: what is wrong", a template
// that is not well formed, a name without an argument, and an argument without a use. The whole
// template is checked, including the branches that these arguments do not take.
Result<std::string> fill_template(std::string_view name, std::string_view text,
                                  std::span<const TemplateArgument> arguments);

}  // namespace lathe
