// Owns the host build of the ops: includes them all and calls each by a list of values.
#include "emulation/op_registry.h"

#include <array>
#include <type_traits>
#include <utility>

#include "op_headers.h"  // generated: includes every header in ptx_templates/ops

namespace lathe::emulation {
namespace {

template <typename T>
constexpr char kind() {
  static_assert(std::is_pointer_v<T> || std::is_same_v<T, int> || std::is_same_v<T, float>,
                "ops take pointers, ints and floats");
  return std::is_pointer_v<T> ? 'p' : std::is_same_v<T, int> ? 'i' : 'r';
}

template <typename T>
T get(const OpValue& value) {
  if constexpr (std::is_pointer_v<T>)
    return static_cast<T>(value.pointer);
  else if constexpr (std::is_same_v<T, int>)
    return value.integer;
  else
    return value.real;
}

template <auto kOp>
struct Caller;
template <typename... Args, void (*kOp)(Args...)>
struct Caller<kOp> {
  static constexpr char signature[] = {kind<Args>()..., '\0'};
  static void call(const OpValue* values) {
    [values]<std::size_t... i>(std::index_sequence<i...>) {
      kOp(get<Args>(values[i])...);
    }
    (std::index_sequence_for<Args...>{});
  }
};

#define LATHE_HOST_OP(header, name) \
  HostOp{header, #name, Caller<&dev::name>::signature, &Caller<&dev::name>::call},
constexpr std::array kOps = {
#include "op_list.inc"  // generated: LATHE_HOST_OP per op
};
#undef LATHE_HOST_OP

char kind(OpArgument::Kind kind) {
  switch (kind) {
    case OpArgument::Kind::integer:
      return 'i';
    case OpArgument::Kind::real:
      return 'r';
    default:
      return 'p';
  }
}

}  // namespace

std::span<const HostOp> host_ops() {
  return kOps;
}

const HostOp* find_host_op(std::string_view name) {
  for (const HostOp& op : kOps)
    if (name == op.name) return &op;
  return nullptr;
}

Result<std::vector<OpValue>> op_values(const OpCall& call, std::span<void* const> arguments) {
  const HostOp* op = find_host_op(call.function);
  if (!op || call.header != op->header)
    return Error{Code::not_found, "no op " + call.function + " in " + call.header, {}};
  std::string signature;
  for (const OpArgument& argument : call.arguments) signature += kind(argument.kind);
  if (signature != op->signature)
    return Error{
        Code::internal,
        "the call of " + call.function + " passes " + signature + ", it takes " + op->signature,
        {}};
  std::vector<OpValue> values(call.arguments.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const OpArgument& argument = call.arguments[i];
    switch (argument.kind) {
      case OpArgument::Kind::parameter:
        if (argument.integer < 0 || static_cast<std::size_t>(argument.integer) >= arguments.size())
          return Error{Code::internal, "the call of " + call.function + " names no parameter", {}};
        values[i].pointer = arguments[static_cast<std::size_t>(argument.integer)];
        break;
      case OpArgument::Kind::null:
        values[i].pointer = nullptr;
        break;
      case OpArgument::Kind::integer:
        values[i].integer = argument.integer;
        break;
      case OpArgument::Kind::real:
        values[i].real = argument.real;
        break;
    }
  }
  return values;
}

}  // namespace lathe::emulation
