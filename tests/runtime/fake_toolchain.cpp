// Owns the tool chain whose cubins the fake driver loads.
#include "tests/runtime/fake_state.h"

namespace lathe::testing {
namespace {

class FakeAssembler final : public Assembler {
 public:
  const std::string& name() const override {
    static const std::string name = "fake assembler 1.0";
    return name;
  }
  Result<Cubin> assemble(std::string_view ptx, const Target&) const override {
    const std::string text = kImageMark + std::string(ptx);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.c_str());
    return Cubin(bytes, bytes + text.size() + 1);
  }
};

}  // namespace

Result<void> FakeToolchain::covers(const KernelKey& key, Route route) const {
  return route_covers(key, route);
}

Result<std::string> FakeToolchain::compiler(Route route) const {
  return std::string("fake ") + route_name(route);
}

Result<Ptx> FakeToolchain::emit(const KernelKey& key, const Target& target, Route route) const {
  LATHE_TRY(target_covers(key, target));
  Ptx ptx;
  ptx.text = key.text();
  ptx.entry = key.symbol();
  ptx.geometry = row(key.type).geometry(key);
  ptx.route = route;
  ptx.target = target;
  ptx.compiler = compiler(route).value();
  return ptx;
}

Result<Ptx> FakeToolchain::emit(const Program& program, const Target& target) const {
  LATHE_TRY(program_fits(program, target));
  Ptx ptx;
  ptx.text = kPersistentMark + program.text();
  ptx.entry = "lathe_persistent";
  ptx.geometry = program.geometry();
  ptx.route = Route::nvrtc;
  ptx.target = target;
  ptx.compiler = compiler(Route::nvrtc).value();
  return ptx;
}

Result<Ptx> FakeToolchain::emit(const CustomKernel& kernel, const Target& target) const {
  Ptx ptx;
  ptx.text = kCustomMark + kernel.source;
  ptx.entry = kernel.entry;
  ptx.geometry = kernel.geometry;
  ptx.route = kernel.language == SourceLanguage::ptx ? Route::text : Route::nvrtc;
  ptx.target = target;
  return ptx;
}

const Assembler& FakeToolchain::assembler() const {
  static const FakeAssembler assembler;
  return assembler;
}

}  // namespace lathe::testing
