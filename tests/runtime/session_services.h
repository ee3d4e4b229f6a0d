// Owns what sessions on any device are held to beside decoding: keys and values, snapshots, and
// choices among allowed tokens.
#pragma once

#include "lathe/runtime/session.h"

namespace lathe::testing {

// Two empty sessions of one model, executor and KV format.
void expect_services(Session& session, Session& other);

}  // namespace lathe::testing
