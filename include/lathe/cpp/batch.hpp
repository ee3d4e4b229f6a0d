// Owns the C++ face of batches. The comments of lathe/c/batch.h hold.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "lathe/lathe.hpp"

namespace lathe::api {
inline namespace v0 {

class Batch : public Handle<lathe_batch, lathe_batch_close> {
 public:
  static Result<Batch> open(const Model& model, const lathe_batch_options& options) {
    lathe_batch* batch = nullptr;
    if (lathe_batch_open(model.get(), &options, &batch) != LATHE_OK) return last_error();
    return Batch(batch);
  }
  Result<lathe_session_info> info() const {
    auto info = sized<lathe_session_info>();
    const lathe_status status = lathe_batch_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<std::string_view> note(int index) const {
    const char* note = "";
    const lathe_status status = lathe_batch_get_note(get(), index, &note);
    return result_of<std::string_view>(status, note);
  }
  // 0 <= index < info().choice_count.
  Result<lathe_choice> choice(int index) const {
    auto choice = sized<lathe_choice>();
    const lathe_status status = lathe_batch_get_choice(get(), index, &choice);
    return result_of(status, choice);
  }
  Result<std::int32_t> join() { return join(sized<lathe_sampling>()); }
  Result<std::int32_t> join(const lathe_sampling& sampling) {
    std::int32_t sequence = -1;
    const lathe_status status = lathe_batch_join(get(), &sampling, &sequence);
    return result_of(status, sequence);
  }
  Result<void> leave(std::int32_t sequence) {
    return result_of(lathe_batch_leave(get(), sequence));
  }
  Result<void> feed(std::int32_t sequence, std::span<const std::int32_t> tokens) {
    return result_of(lathe_batch_feed(get(), sequence, tokens.data(), count(tokens.size())));
  }
  // `chosen` has an element for each row.
  Result<void> step(std::span<const lathe_batch_row> rows, std::span<std::int32_t> chosen) {
    if (chosen.size() < rows.size())
      return Error{LATHE_INVALID_ARGUMENT, 0, "There is less room for tokens than there are rows.",
                   "There is less room for tokens than there are rows."};
    return result_of(lathe_batch_step(get(), rows.data(), count(rows.size()), chosen.data()));
  }
  Result<void> rollback(std::int32_t sequence, std::int32_t length) {
    return result_of(lathe_batch_rollback(get(), sequence, length));
  }
  Result<void> copy(std::int32_t from, std::int32_t to, std::int32_t length) {
    return result_of(lathe_batch_copy(get(), from, to, length));
  }
  Result<std::int32_t> length(std::int32_t sequence) const {
    std::int32_t length = 0;
    const lathe_status status = lathe_batch_get_length(get(), sequence, &length);
    return result_of(status, length);
  }
  Result<std::int32_t> fork(std::int32_t sequence) {
    std::int32_t other = -1;
    const lathe_status status = lathe_batch_fork(get(), sequence, &other);
    return result_of(status, other);
  }
  Result<std::span<const std::int32_t>> tokens(std::int32_t sequence) const {
    const std::int32_t* tokens = nullptr;
    std::int32_t values = 0;
    const lathe_status status = lathe_batch_get_tokens(get(), sequence, &tokens, &values);
    return result_of(status, std::span(tokens, static_cast<std::size_t>(values)));
  }
  Result<std::span<const float>> logits(std::int32_t row) {
    const float* logits = nullptr;
    std::int32_t values = 0;
    const lathe_status status = lathe_batch_get_logits(get(), row, &logits, &values);
    return result_of(status, std::span(logits, static_cast<std::size_t>(values)));
  }
  Result<std::int32_t> choose(std::int32_t row, std::span<const std::uint32_t> allowed) {
    std::int32_t token = -1;
    const lathe_status status =
        lathe_batch_choose(get(), row, allowed.data(), count(allowed.size()), &token);
    return result_of(status, token);
  }
  Result<void> read_kv(std::int32_t sequence, const lathe_kv_range& range,
                       std::span<float> values) {
    return result_of(
        lathe_batch_read_kv(get(), sequence, &range, values.data(), std::ssize(values)));
  }
  Result<void> write_kv(std::int32_t sequence, const lathe_kv_range& range,
                        std::span<const float> values) {
    return result_of(
        lathe_batch_write_kv(get(), sequence, &range, values.data(), std::ssize(values)));
  }
  Result<Snapshot> snapshot(std::int32_t sequence, std::int32_t length) {
    lathe_snapshot* taken = nullptr;
    if (lathe_batch_snapshot(get(), sequence, length, &taken) != LATHE_OK) return last_error();
    return Snapshot(taken);
  }
  Result<void> restore(std::int32_t sequence, const Snapshot& snapshot) {
    return result_of(lathe_batch_restore(get(), sequence, snapshot.get()));
  }
  Result<lathe_draft_counts> generate_with_drafts(
      std::int32_t sequence, std::int32_t token, std::span<std::int32_t> tokens,
      const lathe_draft_options& options = sized<lathe_draft_options>()) {
    auto counts = sized<lathe_draft_counts>();
    const lathe_status status = lathe_batch_generate_with_drafts(
        get(), sequence, token, &options, tokens.data(), count(tokens.size()), &counts);
    return result_of(status, counts);
  }

 private:
  static std::int32_t count(std::size_t values) { return static_cast<std::int32_t>(values); }
  using Handle::Handle;
};

}  // namespace v0
}  // namespace lathe::api
