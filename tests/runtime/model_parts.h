// Owns what sessions of parts of a model are held to: one after the other they are the whole model.
#pragma once

#include <functional>
#include <memory>

#include "lathe/runtime/session.h"

namespace lathe::testing {

// Opens a session of a part of the same file, always in the same way; fails the test and returns
// null where it cannot.
using OpenPart = std::function<std::unique_ptr<Session>(const ModelPart&)>;

// Of models whose norms are to be told from norms with another epsilon.
inline constexpr double kEpsilonThatMatters = 0.25;

// Parts and whole have the output norm's code in common, so that is held to the file, in double
// precision, and the logits to what it gives. The model has two layers or more, and an epsilon that
// matters. `bound`: of the relative L2 distance between what comes out of parts and of the whole.
void expect_parts_make_the_whole(const OpenPart& open, const GgufFile& file, double bound);

}  // namespace lathe::testing
