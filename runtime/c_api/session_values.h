// Owns what the C functions about sessions and batches have in common: options, sampling rules,
// reports, sets of tokens, and the look-up of a session.
#pragma once

#include "runtime/c_api/objects.h"

namespace lathe::c_api {

// For a session or a batch of the model, which says how many values its atoms have.
Result<SessionOptions> session_options_of(const lathe_session_options& given,
                                          const ModelObject& model);
// Its defaults stand for the zeros.
Sampling sampling_of(const lathe_sampling& given);
lathe_session_info session_info_of(const SessionReport& report, const Plan& plan, int launches);
Result<lathe_choice> choice_of(const SessionReport& report, std::int32_t index);
Result<const char*> note_of(const SessionReport& report, std::int32_t index);
Result<Format> kv_format_of(std::int32_t number);
std::int32_t number_of_kv_format(Format format);

// None where there are no words.
Result<TokenSet> token_set_of(const std::uint32_t* allowed, std::int32_t words);
Result<KvRange> kv_range_of(const lathe_kv_range* range);

// Runs the body of a function on an open session.
template <typename Body>
lathe_status with_session(const lathe_session* session, const Body& body) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const SessionObject* object, find<SessionObject>(session));
    return body(*object->session);
  });
}

}  // namespace lathe::c_api
