#include "runtime/observer.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "runtime/api_call.h"
#include "runtime/stream.h"

namespace tcim_lite {

namespace detail {
std::atomic<Watch> g_watch{Watch::Unknown};
}

namespace {

using detail::g_watch;
using detail::Watch;
using Observers = std::vector<std::shared_ptr<Observer>>;

std::atomic<void (*)()> g_source{nullptr};
std::atomic<std::string (*)()> g_site_source{nullptr};

// Only used inside of calls and of runs, so a fork finds the mutexes free. Never destroyed, as the gate.
struct Observing {
  std::mutex mutex;
  std::mutex start;  // held while the source runs
  std::shared_ptr<const Observers> observers = std::make_shared<const Observers>();
};

Observing& observing() {
  static auto* const instance = new Observing;
  return *instance;
}

// Keep the result while using it: another thread may replace the list.
std::shared_ptr<const Observers> observers() {
  const std::lock_guard lock(observing().mutex);
  return observing().observers;
}

// `mutex` is held.
void replace_observers(Observers observers) {
  observing().observers = std::make_shared<const Observers>(std::move(observers));
  if (g_watch.load(std::memory_order_relaxed) == Watch::Unknown) return;
  g_watch.store(observing().observers->empty() ? Watch::Nobody : Watch::Somebody, std::memory_order_relaxed);
}

void read_environment() {
  if (g_watch.load(std::memory_order_acquire) != Watch::Unknown) return;
  const std::lock_guard starting(observing().start);
  if (g_watch.load(std::memory_order_relaxed) != Watch::Unknown) return;
  if (const auto source = g_source.load()) source();
  const std::lock_guard lock(observing().mutex);
  g_watch.store(observing().observers->empty() ? Watch::Nobody : Watch::Somebody, std::memory_order_release);
}

uint64_t now_ns() noexcept {
  return uint64_t(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

TensorFacts::TensorFacts(const Tensor& tensor) : TensorFacts(tensor.info(), tensor.buffer().get(), tensor.offset()) {}

TensorFacts::TensorFacts(const TensorInfo& info, const Buffer* memory, uint64_t offset)
    : buffer(memory == nullptr ? 0 : memory->handle()),
      offset(offset),
      span_bytes(info.span_bytes()),
      device_id(info.device_id),
      dtype(info.dtype),
      shape(info.shape),
      dense(info.is_dense()) {}

const TensorFacts* CallEvent::facts(Memory memory) const noexcept {
  const auto of = [](const std::optional<TensorFacts>& found) { return found ? &*found : nullptr; };
  switch (memory) {
    case Memory::None:
      return nullptr;
    case Memory::Self:
      return of(self);
    case Memory::Tensor:
      return of(tensor);
    case Memory::Port:
      return port ? &port->memory : nullptr;
    case Memory::Result:
      return of(result);
  }
  return nullptr;
}

std::optional<HostArray> host_array(const Tensor& tensor) {
  if (tensor.on_device() || !tensor.has_storage() || !tensor.buffer()->idle()) return std::nullopt;
  return HostArray{tensor.data(), tensor.info().dtype, tensor.info().shape, byte_strides(tensor.info())};
}

void HostValues::describe(CallEvent& event, const Tensor& tensor) {
  event.values = nullptr;
  // The caller must still wait for the runs that use the memory.
  if (tensor.on_device() || !tensor.has_storage() || !tensor.buffer()->idle()) return;
  strides_ = byte_strides(tensor.info());
  view_ = ArrayView{tensor.data(), tensor.info().dtype, tensor.info().shape, strides_};
  event.values = &*view_;
}

void add_observer(std::shared_ptr<Observer> observer) {
  const std::lock_guard lock(observing().mutex);
  Observers next = *observing().observers;
  next.push_back(std::move(observer));
  replace_observers(std::move(next));
}

void remove_observer(const Observer* observer) noexcept {
  const std::lock_guard lock(observing().mutex);
  Observers next = *observing().observers;
  std::erase_if(next, [&](const auto& each) { return each.get() == observer; });
  replace_observers(std::move(next));
}

void set_observer_source(void (*source)()) { g_source = source; }

void start_observers() { read_environment(); }

void set_call_site_source(std::string (*source)()) { g_site_source = source; }

std::string call_site() {
  const auto source = g_site_source.load();
  if (source == nullptr) return {};
  // It takes Python's lock, whose holder may be waiting to fork.
  const ApiCall::Pause outside;
  return source();
}

uint64_t next_handle() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t thread_number() noexcept {
  // Not kept in a thread_local: the child of a fork has another one.
  return uint64_t(syscall(SYS_gettid));
}

void observe_memory(const std::shared_ptr<Buffer>& buffer, Content content) noexcept {
  if (g_watch.load(std::memory_order_relaxed) != Watch::Somebody) return;
  const auto all = observers();
  for (const auto& observer : *all) observer->memory_made(buffer, content);
}

bool observe_run_ready(const RunEvent& event) {
  const auto all = observers();
  return std::all_of(all->begin(), all->end(), [&](const auto& observer) { return observer->run_ready(event); });
}

void observe_run_begin(RunEvent& event) {
  event.thread = thread_number();
  event.begin_ns = now_ns();
  const auto all = observers();
  for (const auto& observer : *all) observer->run_begin(event);
}

void observe_run_end(RunEvent& event) noexcept {
  event.end_ns = now_ns();
  const auto all = observers();
  for (const auto& observer : *all) observer->run_end(event);
}

ObservedCall::ObservedCall(const KnownCall& known) {
  read_environment();
  observers_ = observers();
  event_.name = known.name;
  event_.needs_device = known.needs_device;
}

ObservedCall::~ObservedCall() = default;

bool ObservedCall::anybody() const noexcept { return !observers_->empty(); }

void ObservedCall::begin() {
  event_.call = next_handle();
  event_.thread = thread_number();
  event_.begin_ns = now_ns();
  for (const auto& observer : *observers_) observer->begin(event_);
}

void ObservedCall::fail() noexcept {
  event_.end_ns = now_ns();
  try {
    event_.error = ErrorCode::Internal;
    try {
      throw;
    } catch (const Error& error) {
      event_.error = error.code();
      event_.error_text = error.what();
    } catch (const std::exception& error) {
      event_.error_text = error.what();
    } catch (const Interrupted&) {
      event_.error = ErrorCode::Aborted;
      event_.error_text = "interrupted";
    }
    for (const auto& observer : *observers_) observer->end(event_);
  } catch (...) {  // the call's own error is what the caller gets
  }
}

void ObservedCall::end() {
  event_.end_ns = now_ns();
  for (const auto& observer : *observers_) observer->end(event_);
}

}  // namespace tcim_lite
