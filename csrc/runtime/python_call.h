// A call that Python gets as it stands: each class lists its own beside their declarations, and the bindings take them
// from there.
#pragma once

#include <array>
#include <cstddef>

namespace tcim_lite {

template <typename Member, size_t N>
struct PythonCall {
  const char* name;
  Member member;
  std::array<const char*, N> arguments;
};

template <typename Member, typename... Names>
constexpr PythonCall<Member, sizeof...(Names)> python_call(const char* name, Member member, Names... arguments) {
  return {name, member, {arguments...}};
}

}  // namespace tcim_lite
