// Owns batches: several sequences of a model in one step. The comments of lathe/c/batch.h hold.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

template <auto member>
auto batch_member() {
  return [](Batch& batch) {
    return batch.use([](api::Batch& open) { return value_of(open.info()).*member; });
  };
}

void open_batch(Batch* self, const nb::handle& model, int sequences, int rows, int kv_pages,
                Executor executor, KvFormat kv_format, int context, int chunk, int wait_limit_ms,
                const nb::object& device, std::uintptr_t stream, nb::object progress,
                nb::object cancel, Opening::Weights weights, const nb::object& owner,
                const std::string& tuning) {
  Opening opening(std::move(progress), std::move(cancel), std::move(weights));
  const lathe_session_options session =
      session_options({executor, Fusion(LATHE_FUSION_FULL), kv_format, context, 0, 0, chunk,
                       wait_limit_ms, nb::cast<const Device*>(device), stream, tuning.c_str()},
                      opening);
  auto options = api::sized<lathe_batch_options>();
  options.session = &session;
  options.sequences = sequences;
  options.rows = rows;
  options.kv_pages = kv_pages;
  const Model& of = nb::cast<const Model&>(model);
  auto opened = unlocked([&] { return api::Batch::open(of.handle, options); });
  opening.rethrow();
  new (self) Batch("batch", value_of(std::move(opened)), nb::make_tuple(model, device, owner));
}

std::int32_t join(Batch& self, float temperature, int top_k, float top_p, float min_p,
                  float repeat_penalty, int repeat_last, std::uint64_t seed) {
  const lathe_sampling sampling =
      sampling_of(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed);
  return self.run([&](api::Batch& open) { return open.join(sampling); });
}

std::vector<std::int32_t> step(Batch& self,
                               const std::vector<std::pair<std::int32_t, std::int32_t>>& rows) {
  std::vector<lathe_batch_row> asked;
  for (const auto& [sequence, token] : rows) asked.push_back({sequence, token});
  std::vector<std::int32_t> chosen(rows.size());
  self.use([&](api::Batch& open) { expect(unlocked([&] { return open.step(asked, chosen); })); });
  return chosen;
}

std::int32_t draft(void* user, const std::int32_t* tokens, std::int32_t count, std::int32_t most,
                   std::int32_t* drafts) {
  const nb::gil_scoped_acquire acquired;
  std::int32_t drafted = 0;
  static_cast<Callback*>(user)->try_to([&](const nb::object& drafter) {
    const nb::object drafts_of = drafter(std::vector<std::int32_t>(tokens, tokens + count), most);
    std::vector<std::int32_t> answer;
    if (!nb::try_cast(drafts_of, answer))
      throw nb::value_error("The drafter must return a sequence of tokens.");
    drafted = std::int32_t(std::min(answer.size(), std::size_t(most)));
    std::copy_n(answer.begin(), drafted, drafts);
  });
  return drafted;
}

// The tokens, and steps, drafts and drafts accepted.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> generate_with_drafts(
    Batch& self, std::int32_t sequence, std::int32_t token, int count, int most, int longest,
    int paths, nb::object drafter) {
  const std::size_t wanted = checked_count(count);
  if (most < 1 || longest < 1)  // in C a 0 stands for what is usual
    throw nb::value_error("A run with drafts has 1 or more in a step, after 1 token or more.");
  const lathe_session_info info = self.use([](api::Batch& open) { return value_of(open.info()); });
  if (count > info.context)
    throw std::invalid_argument("The context of " + std::to_string(info.context) +
                                " positions has no room for " + std::to_string(count) + " tokens.");
  Callback callback(std::move(drafter));
  auto options = api::sized<lathe_draft_options>();
  options.drafter = callback.given() ? draft : nullptr;
  options.drafter_user = &callback;
  options.most = most;
  options.longest = longest;
  options.paths = paths;
  std::vector<std::int32_t> tokens(wanted);
  return self.use([&](api::Batch& open) {
    const auto counts =
        unlocked([&] { return open.generate_with_drafts(sequence, token, tokens, options); });
    callback.rethrow();
    const lathe_draft_counts of = value_of(counts);
    return std::pair(tokens, std::vector{of.steps, of.drafted, of.accepted});
  });
}

void bind_sequences(nb::class_<Batch>& batch) {
  batch
      .def("join", &join, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "repeat_penalty"_a,
           "repeat_last"_a, "seed"_a)
      .def(
          "leave",
          [](Batch& self, int sequence) {
            self.use([&](api::Batch& open) { expect(open.leave(sequence)); });
          },
          "sequence"_a)
      .def(
          "feed",
          [](Batch& self, int sequence, const std::vector<std::int32_t>& tokens) {
            self.use([&](api::Batch& open) {
              expect(unlocked([&] { return open.feed(sequence, tokens); }));
            });
          },
          "sequence"_a, "tokens"_a)
      .def("step", &step, "rows"_a)
      .def(
          "rollback",
          [](Batch& self, int sequence, int length) {
            self.use([&](api::Batch& open) { expect(open.rollback(sequence, length)); });
          },
          "sequence"_a, "length"_a)
      .def(
          "copy",
          [](Batch& self, int source, int target, int length) {
            self.use([&](api::Batch& open) { expect(open.copy(source, target, length)); });
          },
          "source"_a, "target"_a, "length"_a)
      .def(
          "length",
          [](Batch& self, int sequence) {
            return self.run([&](api::Batch& open) { return open.length(sequence); });
          },
          "sequence"_a)
      .def(
          "tokens",
          [](Batch& self, int sequence) {
            const auto tokens = self.run([&](api::Batch& open) { return open.tokens(sequence); });
            return std::vector(tokens.begin(), tokens.end());
          },
          "sequence"_a);
}

void bind_results(nb::class_<Batch>& batch) {
  batch
      .def(
          "logits",
          [](Batch& self, int row) {
            return copied(self.run([&](api::Batch& open) { return open.logits(row); }));
          },
          "row"_a)
      .def(
          "choose",
          [](Batch& self, int row, const std::optional<GivenWords>& allowed) {
            const auto words = words_of(allowed);
            return self.run([&](api::Batch& open) { return open.choose(row, words); });
          },
          "row"_a, "allowed"_a.none().noconvert())
      .def(
          "read_kv",
          [](Batch& self, int sequence, KvPart part, int layer, int first, int positions) {
            return read_kv(
                self, part, layer, first, positions,
                [&](api::Batch& open, const lathe_kv_range& range, std::span<float> values) {
                  return open.read_kv(sequence, range, values);
                });
          },
          "sequence"_a, "part"_a, "layer"_a, "first"_a, "positions"_a)
      .def(
          "write_kv",
          [](Batch& self, int sequence, KvPart part, int layer, int first,
             const GivenFloats& values) {
            write_kv(
                self, part, layer, first, values,
                [&](api::Batch& open, const lathe_kv_range& range, std::span<const float> from) {
                  return open.write_kv(sequence, range, from);
                });
          },
          "sequence"_a, "part"_a, "layer"_a, "first"_a, "values"_a)
      .def(
          "snapshot",
          [](Batch& self, int sequence, int length) {
            return Snapshot{
                self.run([&](api::Batch& open) { return open.snapshot(sequence, length); })};
          },
          "sequence"_a, "length"_a)
      .def(
          "restore",
          [](Batch& self, int sequence, const Snapshot& snapshot) {
            self.use([&](api::Batch& open) {
              expect(unlocked([&] { return open.restore(sequence, snapshot.handle); }));
            });
          },
          "sequence"_a, "snapshot"_a)
      .def(
          "fork",
          [](Batch& self, int sequence) {
            return self.run([&](api::Batch& open) { return open.fork(sequence); });
          },
          "sequence"_a, "A new sequence with the rules and all positions of this one.")
      .def("generate_with_drafts", &generate_with_drafts, "sequence"_a, "token"_a, "count"_a,
           "most"_a, "longest"_a, "paths"_a, "drafter"_a.none(),
           nb::sig(
               "def generate_with_drafts(self, sequence: int, token: int, count: int, most: int, "
               "longest: int, paths: int, drafter: collections.abc.Callable[[list[int], int], "
               "collections.abc.Sequence[int]] | None) -> tuple[list[int], list[int]]"));
}

}  // namespace

void bind_batches(nb::module_& module) {
  using Info = lathe_session_info;
  nb::class_<Batch> batch(module, "Batch", "Several sequences of a model, one thread at a time.");
  batch
      .def(
          "__init__", &open_batch, "model"_a, "sequences"_a, "rows"_a, "kv_pages"_a, "executor"_a,
          "kv_format"_a, "context"_a, "chunk"_a, "wait_limit_ms"_a, "device"_a.none(), "stream"_a,
          "progress"_a.none(), "cancel"_a.none(), "weights"_a, "owner"_a.none(), "tuning"_a,
          nb::sig("def __init__(self, model: Model, sequences: int, rows: int, kv_pages: int, "
                  "executor: Executor, kv_format: KvFormat, context: int, chunk: int, "
                  "wait_limit_ms: int, device: "
                  "Device | None, stream: int, progress: collections.abc.Callable[[str, int, int], "
                  "object] | None, cancel: collections.abc.Callable[[], object] | None, weights: "
                  "dict[str, tuple[int, int]], owner: object, tuning: str) -> None"))
      .def("close", &Batch::close)
      .def_prop_ro("closed", &Batch::closed)
      .def_prop_ro("device", batch_member<&Info::device>())
      .def_prop_ro("executor", batch_member<&Info::executor>())
      .def_prop_ro("vocabulary", batch_member<&Info::vocabulary>())
      .def_prop_ro("context", batch_member<&Info::context>())
      .def_prop_ro("layers", batch_member<&Info::layers>())
      .def_prop_ro("kv_heads", batch_member<&Info::kv_heads>())
      .def_prop_ro("head_dim", batch_member<&Info::head_dim>())
      .def_prop_ro("kv_bytes", batch_member<&Info::kv_bytes>())
      .def_prop_ro("kv_pages", batch_member<&Info::kv_pages>(),
                   "Of a KV cache in pages, in all; 0: positions are in a row.")
      .def_prop_ro("kv_pages_used", batch_member<&Info::kv_pages_used>(), "Of those, by now.")
      .def_prop_ro("notes", &notes<api::Batch>)
      .def_prop_ro("choices", &choices<api::Batch>);
  bind_sequences(batch);
  bind_results(batch);
}

}  // namespace lathe::python
