// Owns random histories of a batch: what each of its sequences gets among others is held to what it
// gets alone.
#pragma once

#include "lathe/runtime/batch.h"
#include "verification/random.h"

namespace lathe::testing {

// `events` joins, feeds, steps, drafts with rollbacks, copies and leaves as they come, then the
// history of each sequence again without the others. Expects the same tokens. The batch has room
// for two sequences or more, and is empty before and after.
void run_schedule(Batch& batch, verification::Random& random, int events);

}  // namespace lathe::testing
