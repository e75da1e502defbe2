// Checks, and the table of cases. main() runs the case named on the command line.
#pragma once

#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tcim/tcim_runtime.h"

// A case gets a folder of its own with the models, named by their roles (models.py).
using Case = void (*)(const std::string& folder);
std::map<std::string, Case>& Cases();
int& Failures();

// The emulator says what was wrong; an SDK without that is asked for its status codes only.
#ifdef HAS_LAST_ERROR
inline std::string LastError() { return tcim::GetLastError(); }
inline bool LastErrorHas(const char* words) { return LastError().find(words) != std::string::npos; }
#else
inline std::string LastError() { return ""; }
inline bool LastErrorHas(const char*) { return true; }
#endif

struct Register {
  Register(const char* name, Case run) { Cases()[name] = run; }
};

#define CASE(name)                                           \
  static void Case_##name(const std::string& folder);        \
  static const Register register_##name(#name, Case_##name); \
  static void Case_##name([[maybe_unused]] const std::string& folder)

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << "\n"; \
      ++Failures();                                                           \
    }                                                                         \
  } while (false)

#define CHECK_EQ(left, right)                                                                            \
  do {                                                                                                   \
    const auto check_left = (left);                                                                      \
    const decltype(check_left) check_right = (right);                                                    \
    if (!(check_left == check_right)) {                                                                  \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #left << " is " << check_left << ", expected " \
                << check_right << " (" << LastError() << ")\n";                                          \
      ++Failures();                                                                                      \
    }                                                                                                    \
  } while (false)

// Whether SetInput binds a device tensor to an input that is no dummy: not on runtime 1.3.
inline bool SetInputBinds() { return tcim::GetVersion().rfind("v1.3.", 0) != 0; }

// The values of a tensor, converted.
inline std::vector<float> Values(const tcim::Tensor& tensor) {
  const tcim::Tensor floats = tensor.AsType(tcim::FLOAT32).ToHost(true);
  const auto* data = static_cast<const float*>(floats.Data());
  return data == nullptr ? std::vector<float>() : std::vector<float>(data, data + floats.MemSize() / sizeof(float));
}

inline bool AllEqual(const tcim::Tensor& tensor, float value) {
  const std::vector<float> values = Values(tensor);
  for (const float one : values) {
    if (one != value) return false;
  }
  return !values.empty();
}

// A host tensor of the input's shape, FLOAT32, filled.
inline tcim::Tensor Filled(const tcim::TensorInfo& info, float value) {
  tcim::Tensor tensor = tcim::Tensor::CreateHostTensor(info.AsContiguous().AsType(tcim::FLOAT32));
  for (size_t i = 0; i < tensor.MemSize() / sizeof(float); ++i) static_cast<float*>(tensor.Data())[i] = value;
  return tensor;
}
