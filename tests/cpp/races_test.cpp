// What threads may do at once, for ThreadSanitizer (tests/test_races.py): every test is a loop in several threads.
// Without arguments all but "forks", whose processes need a pool of one thread under that sanitizer.
#include "races.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "layers/clock/clock.h"
#include "layers/faults/fired.h"
#include "layers/registry.h"
#include "layers/strict/report.h"
#include "runtime/device_control.h"

namespace tcim_lite {
namespace {

void test_models_come_and_go_while_others_run() {
  const auto store = std::make_shared<WeightStore>();
  const Turn conversation = [&](int i) { converse(store, i % 2 == 0); };
  const Turn forget = [&](int) { store->release(); };
  const Turn control = [&](int) {
    (void)device_telemetry(0);
    (void)read_usage();
    reset_device(0);
  };
  in_threads(6, {conversation, conversation, conversation}, {forget, control});
}

void test_threads_share_a_module() {
  const auto module = load("add.hmm");
  const TensorInfo info = module->output_info("total");
  const auto one = Stream::create(false), other = Stream::create(false);
  const Turn write = [&](int) {
    for (int i = 0; i < 10; ++i) set(*module, "a", 1);
    module->run();
    (void)module->output("total");
  };
  const auto read = [&](int) {
    const Tensor host = Tensor::allocate(info.on_host());
    module->run(true, 2);
    module->output_to("total", host);
    (void)host.to_array();
  };
  const auto stream = [&](int i) {
    module->set_stream(i % 2 == 0 ? one : other);
    module->run();
    module->sync();
  };
  const auto bind = [&](int) {
    module->set_output("total", Tensor::allocate(info.on_host()));
    module->run();
    module->set_dev_output("total", Tensor::allocate(info));
  };
  const auto time = [&](int) {
    module->time_steps(true);
    module->run();
    (void)module->step_times();
    module->time_steps(false);
  };
  in_threads(100, {write, write, read, stream, bind, time});
  in_threads(20, {quiet(write), quiet(read), quiet([&](int i) { i == 5 ? module->release() : stream(i); })});
}

void test_memory_is_handed_from_thread_to_thread() {
  const auto first = load("add.hmm"), second = load("add.hmm");
  first->set_stream(Stream::create(false));
  second->set_stream(Stream::create(false));
  std::mutex mutex;
  std::deque<Tensor> filled;
  const auto produce = [&](int) {
    const Tensor made = Tensor::allocate(first->output_info("total"));
    first->set_dev_output("total", made);
    first->run();
    first->sync();
    const std::lock_guard lock(mutex);
    filled.push_back(made);
  };
  const auto consume = [&](int) {
    Tensor next;
    {
      const std::lock_guard lock(mutex);
      if (filled.empty()) return;
      next = std::move(filled.front());
      filled.pop_front();
    }
    second->set_dev_input("a", next);
    second->run();
    (void)second->output("total");
    (void)next.to_host(true).to_array();
  };
  in_threads(80, {produce, consume, consume});
}

// Each run has an output of its own, so the bindings of the run before are dropped while others read what it wrote.
void test_results_of_dropped_bindings_are_read_without_sync() {
  const auto module = load("add.hmm");
  std::mutex mutex;
  std::deque<Tensor> queued;
  const auto produce = [&](int) {
    const Tensor made = Tensor::allocate(module->output_info("total"));
    module->set_dev_output("total", made);
    module->run();
    {
      const std::lock_guard lock(mutex);
      queued.push_back(made);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  };
  const auto consume = [&](int) {
    Tensor next;
    while (!next.has_storage()) {
      const std::lock_guard lock(mutex);
      if (queued.empty()) continue;
      next = std::move(queued.front());
      queued.pop_front();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the run ends, and its bindings are dropped
    (void)next.to_host(true).to_array();
  };
  in_threads(40, {produce, consume});
}

void test_errors_of_runs_are_raised_in_any_thread() {
  const auto module = load("llm_decode.hmm");  // without lengths, so each run fails
  std::atomic<int> raised{0};
  const auto catching = [&raised](const auto& call) -> Turn {
    return [&raised, call](int) {
      try {
        call();
      } catch (const Error& error) {
        raised += std::string_view(error.what()).find("current_length") != std::string_view::npos;
      }
    };
  };
  const auto queue = catching([&] { module->run(false, 2); });
  const auto wait = catching([&] { module->sync(); });
  const auto read = catching([&] { (void)module->output("logits"); });
  in_threads(60, {queue, queue, wait, read});
  CHECK(raised > 0);
}

// Brings a listener while the others are told of a round, and takes it away.
class Changing final : public Observer {
 public:
  void run_begin(const RunEvent&) override { add_observer(added_); }
  void run_end(const RunEvent&) noexcept override { remove_observer(added_.get()); }

 private:
  const std::shared_ptr<Observer> added_ = std::make_shared<Observer>();
};

void test_listeners_come_and_go_in_a_round() {
  const auto module = load("add.hmm");
  const auto changing = std::make_shared<Changing>();
  add_observer(changing);
  module->run(true, 3);
  remove_observer(changing.get());
}

constexpr const char* kRules = R"(
[[fault]]
kind = "flaky_sync"
probability = 0.1
times = 0
[[fault]]
kind = "throttle"
clock_mhz = 700
lasts_s = 0.001
probability = 0.2
times = 0
[[fault]]
kind = "device_lost"
nth = 20
times = 0
[[fault]]
kind = "hang"
timeout_s = 0.002
nth = 10
times = 0
[[fault]]
kind = "bit_flip"
output = "total"
times = 0
)";

void test_layers_come_and_go_under_calls(const std::string& folder) {
  using layers::Options;
  const std::vector<std::pair<const char*, Options>> some{
      {"trace", {{"file", folder + "/lines.txt"}}},
      {"faults", {{"rules", kRules}}},
      {"trace", {{"file", folder + "/chrome.json"}, {"phases", "ops"}}},
      {"strict", {}},
      {"record", {{"file", folder + "/recording"}, {"data", "states"}}},
      {"clock", {{"mode", "virtual"}}},
      {"clock", {{"mode", "realtime"}}},
  };
  const auto store = std::make_shared<WeightStore>();
  const Turn run = [&](int) {
    const auto module = load("add.hmm", store);
    set(*module, "a", 1);
    for (int i = 0; i < 3; ++i) module->run(i == 1);
    module->sync();
  };
  const Turn change = [&](int i) {
    const auto& [name, options] = some[size_t(i) % some.size()];
    layers::enable(name, options);
    if (i % 3 == 0) layers::disable(some[size_t(i / 3) % some.size()].first);
  };
  const Turn look = [&](int) {
    reset_device(0);
    (void)layers::active();
    (void)layers::take_fired_faults();
    (void)layers::take_findings();
    (void)layers::modelled_busy_ns(0);
  };
  const Turn conversation = [&](int) { converse(store, false); };
  // The faults that they meet are errors of all calls.
  in_threads(8, {quiet(run), quiet(run), quiet(conversation)}, {quiet(change), quiet(look)});
  for (const std::string& name : layers::active()) layers::disable(name);
}

void test_children_are_forked_while_others_run() {
  const auto shared = load("add.hmm");
  const auto store = std::make_shared<WeightStore>();
  const Turn conversation = [&](int i) { converse(store, i % 2 == 0); };
  const auto run = [&](int) { shared->run(); };
  const auto fork_one = [&](int) {
    const pid_t child = fork();
    if (child == 0) {
      load("add.hmm", store)->run(true);
      shared->run(true);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
  };
  in_threads(4, {conversation, conversation, run, fork_one});
}

// main() returns after this.
void go_on_submitting() {
  const auto flood = [](bool comes_and_goes) {
    for (auto module = load("add.hmm");;) {
      try {
        module->run(false, 2);
        if (comes_and_goes) module->set_stream(Stream::create(false));
      } catch (const Error&) {  // the process ends
      }
    }
  };
  for (int thread = 0; thread < 3; ++thread) std::thread(flood, thread == 2).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace tcim_lite

int main(int argc, char** argv) {
  using namespace tcim_lite;
  alarm(300);  // for a deadlock
  setenv("TCIM_LITE_LOG", "error", 1);
  if (argc > 1 && std::string_view(argv[1]) == "forks") {
    setenv("TCIM_LITE_THREADS", "1", 1);
    test_children_are_forked_while_others_run();
    return check_result();
  }
  setenv("TCIM_LITE_THREADS", "3", 1);
  test_models_come_and_go_while_others_run();
  test_threads_share_a_module();
  test_memory_is_handed_from_thread_to_thread();
  test_results_of_dropped_bindings_are_read_without_sync();
  test_errors_of_runs_are_raised_in_any_thread();
  test_listeners_come_and_go_in_a_round();
  std::string folder = std::filesystem::temp_directory_path() / "tcim_lite_races_XXXXXX";
  CHECK(mkdtemp(folder.data()) != nullptr);
  test_layers_come_and_go_under_calls(folder);
  std::filesystem::remove_all(folder);
  go_on_submitting();
  return check_result();
}
