// Owns the measuring of one tuning: a session with it, and how fast it decodes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/decode/measure.h"
#include "bench/tune/options.h"
#include "bench/tune/search.h"

namespace lathe::bench::tune {

// A session with `words` as if they stood in a table. Nothing where the choices are those with
// `beside`; not where both are the same words.
Result<std::optional<Trial>> measure(const std::shared_ptr<const GgufFile>& file,
                                     const Options& options, const Watch& watch,
                                     const std::string& words, const std::string& beside);

}  // namespace lathe::bench::tune
