// Owns the C functions about batches. The comments of lathe/c/batch.h hold.
#include <algorithm>

#include "lathe/runtime/draft_trees.h"
#include "lathe/runtime/drafts.h"
#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

Result<BatchOptions> options_of(const lathe_batch_options& given, const ModelObject& model) {
  BatchOptions options;
  LATHE_ASSIGN(const auto session, read_optional_struct(given.session, "lathe_session_options"));
  LATHE_ASSIGN(options.session, session_options_of(session, model));
  if (given.sequences != 0) options.sequences = given.sequences;
  if (given.rows != 0) options.rows = given.rows;
  options.kv_pages = given.kv_pages;
  return options;
}

// Runs the body of a function on an open batch.
template <typename Body>
lathe_status with_batch(const lathe_batch* batch, const Body& body) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const BatchObject* object, find<BatchObject>(batch));
    return body(*object->batch);
  });
}

Drafter drafter_of(const lathe_draft_options& given) {
  if (!given.drafter) return LookupDrafts{given.longest == 0 ? 4 : given.longest};
  return [given](std::span<const std::int32_t> tokens, int most) {
    std::vector<std::int32_t> drafts(std::size_t(std::max(most, 0)));
    const std::int32_t count = given.drafter(given.drafter_user, tokens.data(),
                                             std::int32_t(tokens.size()), most, drafts.data());
    drafts.resize(std::size_t(std::clamp(count, 0, std::int32_t(drafts.size()))));
    return drafts;
  };
}

TreeDrafter tree_drafter_of(const lathe_draft_options& given) {
  if (!given.tree_drafter) return LookupTrees{given.longest == 0 ? 4 : given.longest, given.paths};
  return [given](std::span<const std::int32_t> tokens, int most) {
    std::vector<std::int32_t> drafts(std::size_t(std::max(most, 0))), parents(drafts.size(), -1);
    const std::int32_t count =
        given.tree_drafter(given.drafter_user, tokens.data(), std::int32_t(tokens.size()), most,
                           drafts.data(), parents.data());
    std::vector<TreeDraft> tree(std::size_t(std::clamp(count, 0, std::int32_t(drafts.size()))));
    for (std::size_t i = 0; i < tree.size(); ++i) tree[i] = {drafts[i], parents[i]};
    return tree;
  };
}

// By trees where more than one path is wanted.
Result<DraftCounts> generate(Batch& batch, int sequence, std::int32_t token,
                             std::span<std::int32_t> tokens, const lathe_draft_options& given) {
  const int most = given.most == 0 ? 7 : given.most;
  const bool trees = given.paths != 0 && given.paths != 1;
  if (trees ? given.drafter != nullptr : given.tree_drafter != nullptr)
    return Error{Code::invalid_argument,
                 fmt::format("Drafts of {} paths are not what the function given drafts.",
                             std::max(given.paths, 1)),
                 {}};
  if (!trees) return generate_with_drafts(batch, sequence, token, tokens, drafter_of(given), most);
  LATHE_ASSIGN(const TreeCounts counts,
               generate_with_trees(batch, sequence, token, tokens, tree_drafter_of(given), most,
                                   given.paths));
  return counts.drafts;
}

}  // namespace

lathe_status lathe_batch_open(const lathe_model* model, const lathe_batch_options* options,
                              lathe_batch** batch) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(batch);
    LATHE_ASSIGN(const ModelObject* of, find<ModelObject>(model));
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_batch_options"));
    LATHE_ASSIGN(const BatchOptions wanted, options_of(given, *of));
    auto object = std::make_unique<BatchObject>();
    LATHE_ASSIGN(object->batch, Batch::open(of->file, wanted));
    object->launches = object->batch->plan().counts().launches;
    LATHE_ASSIGN(*batch, open_handle(std::move(object)));
    return {};
  });
}

lathe_status lathe_batch_close(lathe_batch* batch) {
  return guarded([&] { return close<BatchObject>(batch); });
}

lathe_status lathe_batch_get_info(const lathe_batch* batch, lathe_session_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const BatchObject* object, find<BatchObject>(batch));
    return write_struct(
        session_info_of(object->batch->report(), object->batch->plan(), object->launches), info,
        "lathe_session_info");
  });
}

lathe_status lathe_batch_get_note(const lathe_batch* batch, std::int32_t index, const char** note) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(note);
    LATHE_ASSIGN(*note, note_of(open.report(), index));
    return {};
  });
}

lathe_status lathe_batch_get_choice(const lathe_batch* batch, std::int32_t index,
                                    lathe_choice* choice) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const lathe_choice found, choice_of(open.report(), index));
    return write_struct(found, choice, "lathe_choice");
  });
}

lathe_status lathe_batch_join(lathe_batch* batch, const lathe_sampling* sampling,
                              std::int32_t* sequence) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(sequence);
    LATHE_ASSIGN(const auto given, read_optional_struct(sampling, "lathe_sampling"));
    LATHE_ASSIGN(*sequence, open.join(sampling_of(given)));
    return {};
  });
}

lathe_status lathe_batch_fork(lathe_batch* batch, std::int32_t sequence, std::int32_t* other) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(other);
    LATHE_ASSIGN(*other, open.fork(sequence));
    return {};
  });
}

lathe_status lathe_batch_leave(lathe_batch* batch, std::int32_t sequence) {
  return with_batch(batch, [&](Batch& open) { return open.leave(sequence); });
}

lathe_status lathe_batch_feed(lathe_batch* batch, std::int32_t sequence, const std::int32_t* tokens,
                              std::int32_t count) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_TRY(check_array(tokens, "tokens", count));
    return open.feed(sequence, {tokens, std::size_t(count)});
  });
}

lathe_status lathe_batch_step(lathe_batch* batch, const lathe_batch_row* rows, std::int32_t count,
                              std::int32_t* chosen) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_TRY(check_array(rows, "rows", count));
    LATHE_NOT_NULL(chosen);
    // One more than a step can have is refused as any other number of them.
    const std::size_t taken = std::min(std::size_t(count), std::size_t{kMostBatchRows} + 1);
    BatchRow asked[kMostBatchRows + 1];
    for (std::size_t i = 0; i < taken; ++i) asked[i] = {rows[i].sequence, rows[i].token};
    LATHE_ASSIGN(const std::span<const std::int32_t> tokens, open.step({asked, taken}));
    std::ranges::copy(tokens, chosen);
    return {};
  });
}

lathe_status lathe_batch_rollback(lathe_batch* batch, std::int32_t sequence, std::int32_t length) {
  return with_batch(batch, [&](Batch& open) { return open.rollback(sequence, length); });
}

lathe_status lathe_batch_copy(lathe_batch* batch, std::int32_t from, std::int32_t to,
                              std::int32_t length) {
  return with_batch(batch, [&](Batch& open) { return open.copy(from, to, length); });
}

lathe_status lathe_batch_get_length(const lathe_batch* batch, std::int32_t sequence,
                                    std::int32_t* length) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(length);
    LATHE_ASSIGN(*length, open.length(sequence));
    return {};
  });
}

lathe_status lathe_batch_get_tokens(const lathe_batch* batch, std::int32_t sequence,
                                    const std::int32_t** tokens, std::int32_t* count) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(tokens);
    LATHE_NOT_NULL(count);
    LATHE_ASSIGN(const std::span<const std::int32_t> of, open.tokens(sequence));
    *tokens = of.data();
    *count = std::int32_t(of.size());
    return {};
  });
}

lathe_status lathe_batch_get_logits(lathe_batch* batch, std::int32_t row, const float** logits,
                                    std::int32_t* count) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(logits);
    LATHE_NOT_NULL(count);
    LATHE_ASSIGN(const std::span<const float> values, open.logits(row));
    *logits = values.data();
    *count = std::int32_t(values.size());
    return {};
  });
}

lathe_status lathe_batch_choose(lathe_batch* batch, std::int32_t row, const std::uint32_t* allowed,
                                std::int32_t words, std::int32_t* token) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const TokenSet set, token_set_of(allowed, words));
    LATHE_NOT_NULL(token);
    LATHE_ASSIGN(*token, open.choose(row, set));
    return {};
  });
}

lathe_status lathe_batch_read_kv(lathe_batch* batch, std::int32_t sequence,
                                 const lathe_kv_range* range, float* values, std::int64_t count) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const KvRange of, kv_range_of(range));
    LATHE_TRY(check_array(values, "values", count));
    return open.read_kv(sequence, of, {values, std::size_t(count)});
  });
}

lathe_status lathe_batch_write_kv(lathe_batch* batch, std::int32_t sequence,
                                  const lathe_kv_range* range, const float* values,
                                  std::int64_t count) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const KvRange of, kv_range_of(range));
    LATHE_TRY(check_array(values, "values", count));
    return open.write_kv(sequence, of, {values, std::size_t(count)});
  });
}

lathe_status lathe_batch_snapshot(lathe_batch* batch, std::int32_t sequence, std::int32_t length,
                                  lathe_snapshot** snapshot) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_NOT_NULL(snapshot);
    LATHE_ASSIGN(KvSnapshot taken, open.snapshot(sequence, length));
    LATHE_ASSIGN(*snapshot, open_handle(std::make_unique<SnapshotObject>(std::move(taken))));
    return {};
  });
}

lathe_status lathe_batch_restore(lathe_batch* batch, std::int32_t sequence,
                                 const lathe_snapshot* snapshot) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const SnapshotObject* object, find<SnapshotObject>(snapshot));
    return open.restore(sequence, object->snapshot);
  });
}

lathe_status lathe_batch_generate_with_drafts(lathe_batch* batch, std::int32_t sequence,
                                              std::int32_t token,
                                              const lathe_draft_options* options,
                                              std::int32_t* tokens, std::int32_t count,
                                              lathe_draft_counts* counts) {
  return with_batch(batch, [&](Batch& open) -> Result<void> {
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_draft_options"));
    LATHE_TRY(check_array(tokens, "tokens", count));
    if (counts) LATHE_TRY(check_size(counts, "lathe_draft_counts"));
    LATHE_ASSIGN(const DraftCounts done,
                 generate(open, sequence, token, {tokens, std::size_t(count)}, given));
    if (!counts) return {};
    return write_struct({.struct_size = 0,
                         .steps = done.steps,
                         .drafted = done.drafted,
                         .accepted = done.accepted,
                         .reserved = 0},
                        counts, "lathe_draft_counts");
  });
}
