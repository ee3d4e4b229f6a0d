// Owns what a session does beside decoding: keys and values, snapshots, likeliest and allowed
// tokens. The comments of lathe/c/services.h hold.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

template <auto member>
auto snapshot_member() {
  return [](const Snapshot& snapshot) { return value_of(snapshot.handle.info()).*member; };
}

Words token_set(const std::vector<std::int32_t>& ids, std::int32_t vocabulary) {
  if (vocabulary < 1) throw nb::value_error("A vocabulary has one token or more.");
  const std::size_t words = (std::size_t(vocabulary) + 31) / 32;
  auto set = std::make_unique<std::uint32_t[]>(words);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary) throw nb::index_error("A token is outside the vocabulary.");
    set[std::size_t(id) / 32] |= std::uint32_t{1} << (id % 32);
  }
  return owned<Words>(std::move(set), {words});
}

std::pair<Floats<3>, Floats<3>> capture_kv(Session& self, int positions, int most) {
  const auto info = self.use([](api::Session& open) { return value_of(open.info()); });
  const auto capture =
      self.run([&](api::Session& open) { return open.capture_kv(positions, most); });
  const auto array = [&](const std::vector<float>& values) {
    auto copy = std::make_unique<float[]>(values.size());
    std::copy(values.begin(), values.end(), copy.get());
    return owned<Floats<3>>(
        std::move(copy),
        {std::size_t(info.layers), std::size_t(capture.vectors), std::size_t(info.head_dim)});
  };
  return {array(capture.keys), array(capture.values)};
}

Floats<1> read_logits(Session& self, int first, int count) {
  const std::size_t wanted = checked_count(count);
  const int vocabulary =
      self.use([](api::Session& open) { return value_of(open.info()).vocabulary; });
  // More than there are is refused before anything is written.
  std::vector<float> values(count > vocabulary ? 1 : wanted);
  self.use([&](api::Session& open) {
    expect(unlocked([&] { return open.read_logits(first, {values.data(), wanted}); }));
  });
  return copied(std::span(values));
}

std::vector<std::pair<std::int32_t, float>> likeliest(Session& self, int most,
                                                      const std::optional<GivenWords>& allowed) {
  const auto words = words_of(allowed);
  std::vector<std::pair<std::int32_t, float>> tokens;
  for (const lathe_scored_token& token :
       self.run([&](api::Session& open) { return open.likeliest(most, words); }))
    tokens.emplace_back(token.token, token.logit);
  return tokens;
}

}  // namespace

void bind_snapshots(nb::module_& module) {
  using Info = lathe_snapshot_info;
  nb::class_<Snapshot>(module, "Snapshot",
                       "The tokens of a prefix with their keys and values, in host memory.")
      .def_prop_ro("tokens",
                   [](const Snapshot& snapshot) {
                     const auto info = value_of(snapshot.handle.info());
                     return std::vector(info.tokens, info.tokens + info.length);
                   })
      .def_prop_ro("length", snapshot_member<&Info::length>())
      .def_prop_ro("bytes", snapshot_member<&Info::bytes>());
  module.def("token_set", &token_set, "ids"_a, "vocabulary"_a,
             "A set of tokens as an array of words: token i is bit i % 32 of word i // 32.");
}

void bind_services(nb::class_<Session>& session) {
  session
      .def(
          "read_kv",
          [](Session& self, KvPart part, int layer, int first, int positions) {
            return read_kv(self, part, layer, first, positions,
                           [](api::Session& open, const lathe_kv_range& range,
                              std::span<float> values) { return open.read_kv(range, values); });
          },
          "part"_a, "layer"_a, "first"_a, "positions"_a,
          "f32, by position, KV head and element, whatever the cache's format.")
      .def(
          "write_kv",
          [](Session& self, KvPart part, int layer, int first, const GivenFloats& values) {
            write_kv(self, part, layer, first, values,
                     [](api::Session& open, const lathe_kv_range& range,
                        std::span<const float> from) { return open.write_kv(range, from); });
          },
          "part"_a, "layer"_a, "first"_a, "values"_a, "Rounds to the cache's format.")
      .def("capture_kv", &capture_kv, "positions"_a, "most"_a,
           "Keys and values, by layer, vector and element: at most `most` vectors of each layer.")
      .def("reset",
           [](Session& self) {
             self.use([](api::Session& open) { expect(unlocked([&] { return open.reset(); })); });
           })
      .def(
          "snapshot",
          [](Session& self, int length) {
            return Snapshot{self.run([&](api::Session& open) { return open.snapshot(length); })};
          },
          "length"_a)
      .def(
          "restore",
          [](Session& self, const Snapshot& snapshot) {
            self.use([&](api::Session& open) {
              expect(unlocked([&] { return open.restore(snapshot.handle); }));
            });
          },
          "snapshot"_a)
      .def("read_logits", &read_logits, "first"_a, "count"_a)
      .def("likeliest", &likeliest, "most"_a, "allowed"_a.noconvert() = nb::none(),
           "The allowed tokens with the greatest logits, and those, greatest first.")
      .def(
          "likeliest_of",
          [](Session& self, const std::vector<std::int32_t>& ids) {
            return self.run([&](api::Session& open) { return open.likeliest_of(ids); });
          },
          "ids"_a, "The likeliest of a list; -1 where there is none.")
      .def(
          "choose",
          [](Session& self, const std::optional<GivenWords>& allowed) {
            const auto words = words_of(allowed);
            return self.run([&](api::Session& open) { return open.choose(words); });
          },
          "allowed"_a.none().noconvert(),
          "What `sampled` would be if only these tokens were there; -1 where none can be chosen.");
}

}  // namespace lathe::python
