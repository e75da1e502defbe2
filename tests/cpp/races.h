// What the tests of threads (races_test.cpp) do in a thread, and the loop that does it in several.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "runtime/module.h"

namespace tcim_lite {

using Turn = std::function<void(int)>;

// Every turn in a thread of its own, called `count` times with 0, 1, ..; the others until all those are done.
inline void in_threads(int count, const std::vector<Turn>& turns, const std::vector<Turn>& others = {}) {
  std::atomic<size_t> left{turns.size()};
  const auto attempt = [](const Turn& turn, int i) {
    try {
      turn(i);
    } catch (const Error& error) {
      report_failure(__FILE__, __LINE__, error.what());
    }
  };
  std::vector<std::thread> threads;
  for (const Turn& turn : turns) {
    threads.emplace_back([&] {
      for (int i = 0; i < count; ++i) attempt(turn, i);
      --left;
    });
  }
  for (const Turn& turn : others) {
    threads.emplace_back([&] {
      for (int i = 0; left > 0; ++i) {
        attempt(turn, i);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Of a turn whose errors are expected.
inline Turn quiet(const Turn& turn) {
  return [turn](int i) {
    try {
      turn(i);
    } catch (const Error&) {
    }
  };
}

inline std::shared_ptr<Module> load(const char* name, std::shared_ptr<WeightStore> store = nullptr) {
  LoadOptions options;
  options.weights = std::move(store);
  return Module::load(std::string(TCIM_LITE_TEST_DATA "/../../tcim_lite/conformance/models/") + name, options);
}

inline void set(Module& module, std::string_view name, float value) {
  const TensorInfo info = module.input_info(name).on_host();
  const std::vector<float> values(size_t(info.elements()), value);
  const Shape strides = byte_strides(info.astype(DType::Float32));
  module.set_input(name, {reinterpret_cast<const std::byte*>(values.data()), DType::Float32, info.shape, strides});
}

inline void set_lengths(Module& module, int32_t valid) {
  const int64_t one = 1, stride = sizeof(int32_t);
  for (const auto& [name, value] : {std::pair("valid_length", valid), std::pair("current_length", int32_t{1})})
    module.set_input(name, {reinterpret_cast<const std::byte*>(&value), DType::Int32, {&one, 1}, {&stride, 1}});
}

// A conversation with two graphs that share weights and caches.
inline void converse(std::shared_ptr<WeightStore> store, bool drop_first) {
  auto prefill = load("llm_prefill.hmm", store), decode = load("llm_decode.hmm", store);
  const auto stream = Stream::create(false);
  for (Module* module : {prefill.get(), decode.get()}) {
    module->set_stream(stream);
    set(*module, "input_1", 0.5f);
    set_lengths(*module, 0);
  }
  for (size_t i = 0; i < decode->num_inputs(); ++i) {
    const std::string name = decode->input_name(int64_t(i));
    if (name.find("cache") != std::string::npos) decode->set_dev_input(name, prefill->input(name));
  }
  prefill->run();
  if (drop_first) prefill.reset();
  for (int32_t valid = 1; valid < 4; ++valid) {
    set_lengths(*decode, valid);
    decode->run(valid == 2, 2);
    (void)decode->output("logits");
  }
  decode->run();
}

}  // namespace tcim_lite
