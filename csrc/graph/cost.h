// What one run of a graph reads and computes, counted from its ops. Benchmarks and the model of the chip's time
// (runtime/device_time.h) have their numbers from here.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tcim_lite {

// What decides how fast an op is.
enum class WorkKind : uint8_t {
  Linear,     // rows times weights, experts included
  Attention,  // queries times caches
  Conv,
  Product,   // of two tensors
  Exchange,  // between devices
  Other,     // elementwise and moves: their bytes stay on the chip
};

// Of one slot of an attention.
struct CacheReads {
  uint64_t row_bytes = 0;       // one row of its keys and values
  int64_t window = 0;           // rows that a token sees; 0: all before it
  uint32_t valid = kNoValue;    // index of the graph input that says how many rows there are before the run
  uint32_t current = kNoValue;  // the same of how many the run adds
  int64_t context = 0;          // rows that the caches hold
  uint32_t mask = kNoValue;     // value of the graph
};

struct OpCost {
  OpKind op = OpKind::Linear;
  WorkKind work = WorkKind::Other;
  bool quantized = false;        // int8 products; otherwise in floating point
  bool is_view = false;          // another look at the same bytes: nothing is done
  uint64_t weight_bytes = 0;     // read by this op; of a weight that an earlier op has read 0
  uint64_t operations = 0;       // a multiply-add is two; those of an attention follow from the rows it sees
  uint64_t exchanged_bytes = 0;  // that a device gets from the others
  // Of an attention.
  std::vector<CacheReads> caches;    // by slot
  int64_t tokens = 0;                // of a slot
  uint64_t operations_per_pair = 0;  // of a token and a row that it sees

  // Cache rows that the tokens of a slot see together, with so many before them.
  int64_t rows_seen(size_t slot, int64_t valid) const;
  // Pairs of a token and a row that it sees, of a slot.
  uint64_t pairs(size_t slot, int64_t valid) const;
};

// The ops of a graph in order. Every row of the graph counts: a compiled graph has fixed shapes.
struct GraphCost {
  std::vector<OpCost> ops;
  uint64_t mask_bytes = 0;  // of all masks, which layers share
  int64_t slots = 0;        // with lengths and caches of their own; 0: no caches
  int64_t tokens = 0;       // of a slot; 0: no caches

  // Weights once, and of experts as many as the rows can choose, each another one while there are any.
  uint64_t weight_bytes() const;
  // Those, the masks, and the cache rows that tokens see after `valid` others in every slot.
  uint64_t read_bytes(int64_t valid) const;
  // Of `work` alone.
  uint64_t operations(WorkKind work) const;
  bool quantized() const;
};

// The graph has been validated.
GraphCost cost_of(const Graph& graph);

}  // namespace tcim_lite
