// Owns parts of models, hidden states and the times of steps. The comments of lathe/c/pass.h hold.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

using GivenState = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Label, layer, kernel, microseconds.
using StepTime = std::tuple<std::string, int, std::string, double>;

lathe_model_part part(int first_layer, int layers, bool from_hidden, bool to_hidden, Blocks blocks,
                      bool residual) {
  auto part = api::sized<lathe_model_part>();
  part.first_layer = first_layer;
  part.layers = layers;
  part.input = from_hidden ? LATHE_INPUT_HIDDEN : LATHE_INPUT_TOKEN;
  part.output = to_hidden ? LATHE_OUTPUT_HIDDEN : LATHE_OUTPUT_LOGITS;
  part.blocks = number(blocks);
  part.no_residual = residual ? 0 : 1;
  return part;
}

Floats<1> hidden(Session& self, bool normed) {
  const auto info = self.use([](api::Session& open) { return value_of(open.info()); });
  auto values = std::make_unique<float[]>(std::size_t(info.hidden));
  self.use([&](api::Session& open) {
    expect(unlocked([&] {
      return open.read_hidden(normed ? LATHE_HIDDEN_NORMED : LATHE_HIDDEN_STREAM,
                              {values.get(), std::size_t(info.hidden)});
    }));
  });
  return owned<Floats<1>>(std::move(values), {std::size_t(info.hidden)});
}

std::vector<StepTime> step_times(Session& self) {
  std::vector<StepTime> times;
  for (const lathe_step_time& step : self.run([](api::Session& open) { return open.step_times(); }))
    times.emplace_back(step.label, step.layer, step.kernel, step.microseconds);
  return times;
}

}  // namespace

void bind_part(nb::module_& module) {
  nb::enum_<Blocks>(module, "Blocks", nb::is_arithmetic(), "Which blocks of a layer.")
      .value("BOTH", Blocks(LATHE_BLOCKS_BOTH))
      .value("ATTENTION", Blocks(LATHE_BLOCKS_ATTENTION))
      .value("FFN", Blocks(LATHE_BLOCKS_FFN));
  nb::class_<lathe_model_part>(module, "Part", "Which part of a model a session decodes.")
      .def(
          "__init__",
          [](lathe_model_part* self, int first_layer, int layers, bool from_hidden, bool to_hidden,
             Blocks blocks, bool residual) {
            new (self) lathe_model_part(
                part(first_layer, layers, from_hidden, to_hidden, blocks, residual));
          },
          nb::kw_only(), "first_layer"_a = 0, "layers"_a = 0, "from_hidden"_a = false,
          "to_hidden"_a = false, "blocks"_a = Blocks(LATHE_BLOCKS_BOTH), "residual"_a = true,
          "layers: from first_layer on; 0 is all that there are. from_hidden: a step takes a "
          "hidden "
          "state, not a token. to_hidden: nothing after the last layer. blocks of one kind are of "
          "one layer, from hidden to hidden; without the residual they are what the block adds.");
}

void bind_parts(nb::class_<Session>& session) {
  session
      .def(
          "step_hidden",
          [](Session& self, const GivenState& state, std::int32_t token) {
            self.use([&](api::Session& open) {
              expect(unlocked([&] {
                return open.step_hidden({state.data(), state.size()}, token);
              }));
            });
          },
          "state"_a.noconvert(), "token"_a = -1,
          "A step from a hidden state, f32; token: what counts as recent in its place.")
      .def("hidden", &hidden, "normed"_a = false,
           "The residual stream after the last layer, or after the output norm.")
      .def("step_times", &step_times,
           "Label, layer, kernel and microseconds of each step of the last token: time_steps.")
      .def(
          "submit_round_trip",
          [](Session& self, int times) {
            const auto trip =
                self.run([&](api::Session& open) { return open.submit_round_trip(times); });
            return std::tuple(trip.least, trip.median);
          },
          "times"_a = 100, "Least and median microseconds of a submission without work.");
}

}  // namespace lathe::python
