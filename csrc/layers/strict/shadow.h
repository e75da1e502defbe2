// What strict mode knows about memory and modules. It is built from events only. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/observer.h"

namespace tcim_lite::layers {

// Byte ranges that somebody has written, joined where they touch.
class Written {
 public:
  void add(uint64_t begin, uint64_t end);
  bool covers(uint64_t begin, uint64_t end) const;
  bool touches(uint64_t begin, uint64_t end) const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end
};

// When each row of a cache was written last: a time of Shadow::clock, 0 for never.
using CacheRows = std::vector<uint64_t>;

// What a run left in a state of linear attention: the tokens that it has seen.
struct StateMark {
  int64_t tokens = 0;
  uint64_t time = 0;
};

struct BufferShadow {
  std::weak_ptr<Buffer> memory;
  Content content = Content::Unspecified;
  uint64_t bytes = 0;
  Written written;
  uint64_t host_write = 0;               // time of the last one
  std::map<uint64_t, CacheRows> caches;  // by offset in bytes
  std::map<uint64_t, StateMark> states;  // the same
};

struct PortShadow {
  std::string name;
  TensorFacts memory;
  uint64_t own = 0;     // handle of the memory it was loaded with
  uint64_t sink = 0;    // handle of the host tensor of set_output
  uint64_t set_at = 0;  // time of the last binding
  bool is_state = false;
  bool is_length = false;
  bool is_linear_state = false;
  int32_t slot = -1;            // of the batch, of such a state
  std::optional<int64_t> step;  // of such an output: it is the state after this token of a run, not after the last
  bool is_read = false;         // by an op
  bool is_cropped = false;      // an image of which another input says the part that is read
};

// A cache that an op updates, as input ports.
struct CachePorts {
  size_t cache;
  std::optional<size_t> valid, current;
  std::optional<size_t> positions;  // of the tokens that go into it, where the graph takes them
  std::vector<size_t> axes;         // those along time, height and width, where it takes three, in one input or three
  std::optional<size_t> mask;       // of linear attention, where it takes one
  int32_t slot = 0;                 // of the batch
  int64_t tokens = 0;               // of the token axis
  int64_t context = 0;              // rows of the cache
};

// A run that was called for and has not ended.
struct QueuedRun {
  uint64_t call;
  std::string site;
  int rounds;
  bool stale_length;  // other input than the run before, but no new valid_length
};

struct ModuleShadow {
  std::string file;
  std::vector<PortShadow> inputs, outputs;
  std::vector<CachePorts> caches;
  int64_t batch = 1;
  bool released = false;
  uint64_t last_run = 0;  // time
  std::deque<QueuedRun> queue;

  // Since the last sync.
  bool pending = false;
  uint64_t stream = 0;
  std::map<uint64_t, bool> used;  // handle of memory -> whether the runs write it
};

class Shadow {
 public:
  uint64_t tick() { return ++clock_; }

  void add_buffer(const std::shared_ptr<Buffer>& buffer, Content content);
  // Null for memory made before strict mode, and for host memory.
  BufferShadow* buffer(uint64_t handle);
  // Bytes that a host wrote.
  void host_write(const TensorFacts& target);

  void add_module(const ModuleFacts& facts);
  ModuleShadow* module(uint64_t handle);
  void forget_module(uint64_t handle) { modules_.erase(handle); }
  std::unordered_map<uint64_t, ModuleShadow>& modules() { return modules_; }

  // The module whose unsynced runs use (write, if `written`) the memory; null if there is none.
  const ModuleShadow* user_of(uint64_t buffer, bool written) const;
  // Everything queued on the stream is done.
  void synced(uint64_t stream);
  // The rows of a module's cache; null for memory that is not known.
  CacheRows* rows(const ModuleShadow& module, const CachePorts& ports);
  // Of a state of linear attention, the tokens that it has seen; nothing if the host wrote it, or it is not known.
  std::optional<int64_t> tokens_of(const TensorFacts& state);
  void learn_state(const TensorFacts& state, int64_t tokens);
  // When the input was set or bound last.
  uint64_t set_time(const PortShadow& port);
  // Whether the memory is known, and nothing of what a run may read was ever written.
  bool is_unset(const PortShadow& port, const TensorFacts& memory);
  // Whether the memory is known, and part of it was never written.
  bool is_unwritten(const TensorFacts& memory);

 private:
  void prune();

  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, BufferShadow> buffers_;
  size_t prune_at_ = 256;
  std::unordered_map<uint64_t, ModuleShadow> modules_;
};

}  // namespace tcim_lite::layers
