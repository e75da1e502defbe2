// What a listener on the runtime API sees: every call from outside, and every round of a queued run. Facts only:
// listeners keep whatever state they need. csrc/layers has the listeners.
//
// With nobody listening a call costs one relaxed load and a branch; nothing here is filled in then.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/no_copy.h"
#include "graph/graph.h"
#include "runtime/tensor.h"

namespace tcim_lite {

class Program;
struct LoadOptions;

struct TensorFacts {
  TensorFacts() = default;
  explicit TensorFacts(const Tensor& tensor);
  TensorFacts(const TensorInfo& info, const Buffer* memory, uint64_t offset);

  uint64_t buffer = 0;      // handle of the memory; 0: none, an unbound dummy
  uint64_t offset = 0;      // bytes into it
  uint64_t span_bytes = 0;  // from the first element to the last
  int device_id = kHost;
  DType dtype = DType::Float16;
  Shape shape;
  bool dense = true;
};

// A port and what it uses at the moment.
struct PortFacts {
  bool is_input = true;
  size_t index = 0;  // in API order
  std::string name;  // as compiled
  TensorFacts memory;
  bool set_input_binds = true;  // a device tensor (api_version.h)
};

struct ModuleFacts {
  uint64_t module = 0;
  std::string file;
  const Graph* graph = nullptr;  // of rank 0; valid during the event
  std::vector<PortFacts> inputs;
  std::vector<PortFacts> outputs;
};

// Values that a call made, in host memory that is there during the event.
struct HostArray {
  std::byte* data;
  DType dtype;
  Shape shape;
  Shape strides;  // in bytes
  ArrayView view() const { return {data, dtype, shape, strides}; }
};

// None for memory of a device, or memory that queued runs use.
std::optional<HostArray> host_array(const Tensor& tensor);

// The member of a CallEvent that has the facts.
enum class Memory { None, Self, Tensor, Port, Result };

// One call. Handles (module, stream, buffer) are numbers that no other object of the process ever has; 0 is none.
// What a call does not have is empty. After a successful call the facts describe what it left behind.
struct CallEvent {
  const char* name = "";  // "Module.run"
  bool needs_device = false;
  uint64_t call = 0;      // unique, as handles are
  uint64_t thread = 0;    // the system's thread id
  uint64_t begin_ns = 0;  // steady clock
  uint64_t end_ns = 0;    // 0 at the beginning

  uint64_t module = 0;
  uint64_t stream = 0;
  std::shared_ptr<Program> program;  // what the module runs: its devices, file and weights
  std::string argument;              // the name or path as given
  std::optional<PortFacts> port;     // that the name stands for, if it does
  std::optional<TensorFacts> self;   // of a Tensor call
  std::optional<TensorFacts> tensor;
  // Whose values the call reads and writes in its turn, and whether it binds `tensor` to `port`: for listeners that
  // keep track of memory, which therefore need not know the names of calls.
  Memory reads = Memory::None, writes = Memory::None;
  bool binds = false;
  const ArrayView* array = nullptr;  // host data of the caller; valid during the event
  // Values that the call converts: those of `array`, or of a host tensor that no queued run uses. Valid during the
  // event.
  const ArrayView* values = nullptr;
  // The values of `self`, which the call reads, where the program has a pointer into that host memory and so may have
  // written them without a call.
  std::optional<HostArray> handed_out;
  // After a call: the values of its host result, or of the host tensor it wrote.
  std::optional<HostArray> made;
  std::optional<TensorFacts> info;      // a TensorInfo: an argument, or the result of a getter
  std::optional<Shape> start, extents;  // of Tensor.select_roi
  std::optional<int64_t> index;         // of an input or output
  const LoadOptions* load = nullptr;    // of Module.load; valid during the event
  std::optional<DType> dtype;
  std::optional<bool> sync;    // as it takes effect
  std::optional<bool> copies;  // of Tensor.clone
  std::optional<int> rounds;
  std::optional<int> device_id;
  std::vector<int> device_ids;  // that a load may use, by rank

  std::optional<TensorFacts> result;
  std::optional<ModuleFacts> loaded;
  std::string value;  // another result as text
  std::optional<ErrorCode> error;
  std::string error_text;

  // Null if there are none: a name without a port, or a result before the call has ended.
  const TensorFacts* facts(Memory memory) const noexcept;
};

// Makes the values of a host tensor those of an event, for as long as this lives.
class HostValues {
 public:
  void describe(CallEvent& event, const Tensor& tensor);

 private:
  Shape strides_;
  std::optional<ArrayView> view_;
};

// One round of a run, on whatever thread the stream runs it.
struct RunEvent {
  uint64_t module = 0;
  uint64_t stream = 0;
  std::shared_ptr<Program> program;
  uint64_t thread = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;                              // 0 at the beginning
  std::vector<TensorFacts> inputs;                  // in API order
  std::vector<TensorFacts> outputs;                 // the same, then the host tensors of set_output
  std::span<const std::shared_ptr<Buffer>> memory;  // of both, in this order; valid during the event
  std::vector<std::optional<int32_t>> lengths;      // the values of the int32 [1] inputs, by input
  std::vector<std::vector<int32_t>> positions;      // the values of inputs of positions, by input; else empty
  std::vector<std::vector<float>> linear_masks;     // those of masks of linear attention, by input; else empty
  std::vector<std::string> changed_files;           // a sentence for each that is not what was loaded any more
  bool failed = false;
};

// Called on the threads that do the work, several at once, with no lock of the runtime held by begin and end. A
// listener may call no API. What begin or run_begin throws keeps the call or round from happening, and end or
// run_end hears of it; what end throws replaces the result of a call that succeeded.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const CallEvent&) {}
  virtual void end(const CallEvent&) {}
  // Before run_begin. False: the devices do not take the round yet, and all are asked again; this has waited a little.
  virtual bool run_ready(const RunEvent&) { return true; }
  virtual void run_begin(const RunEvent&) {}
  virtual void run_end(const RunEvent&) noexcept {}
  // New device memory nobody can use yet. It is zero; what is not Content::Zero may be changed.
  virtual void memory_made(const std::shared_ptr<Buffer>&, Content) noexcept {}
  // Its user has ended it. What is under way in other threads may still call it.
  virtual void ended() noexcept {}
};

void add_observer(std::shared_ptr<Observer> observer);
void remove_observer(const Observer* observer) noexcept;

// Called once, by the first call of the process; adds the observers that the environment names. What it throws, the
// call throws, and the next call tries again.
void set_observer_source(void (*source)());

// Asks the source now if nobody has yet.
void start_observers();

// "demo.py:12" of the code that called into the API from this thread, or "" where nobody knows. The source is asked
// with no lock held.
void set_call_site_source(std::string (*source)());
std::string call_site();

uint64_t next_handle() noexcept;
uint64_t thread_number() noexcept;

namespace detail {
enum class Watch : int { Unknown, Nobody, Somebody };
extern std::atomic<Watch> g_watch;
}  // namespace detail

inline bool observed() noexcept { return detail::g_watch.load(std::memory_order_relaxed) != detail::Watch::Nobody; }

// These do nothing while nobody listens.
void observe_memory(const std::shared_ptr<Buffer>& buffer, Content content) noexcept;
bool observe_run_ready(const RunEvent& event);
void observe_run_begin(RunEvent& event);
void observe_run_end(RunEvent& event) noexcept;

// A call as its definition describes it (api_call.h). The list is complete once the library is loaded.
class KnownCall : public NoCopy {
 public:
  KnownCall(const char* name, bool needs_device) noexcept : name(name), needs_device(needs_device), next(last_) {
    last_ = this;
  }

  const char* const name;
  const bool needs_device;
  const KnownCall* const next;

  // From here on by `next`, in no order.
  static const KnownCall* first() noexcept { return last_; }

 private:
  static constinit inline const KnownCall* last_ = nullptr;
};

// A call being told to the listeners.
class ObservedCall {
 public:
  explicit ObservedCall(const KnownCall& known);
  ~ObservedCall();  // not inline: every call has one, and an event has many members
  // False: the environment named no layer after all.
  bool anybody() const noexcept;
  CallEvent& event() noexcept { return event_; }
  void begin();
  // In a catch block.
  void fail() noexcept;
  void end();

 private:
  std::shared_ptr<const std::vector<std::shared_ptr<Observer>>> observers_;
  CallEvent event_;
};

}  // namespace tcim_lite
