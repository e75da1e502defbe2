// What windows of 3 x 3 with one element of padding read of a row where it lies.
#pragma once

#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

struct None {};  // lanes behind the end of a row
template <typename T>
inline Vec load(const T*, None) {
  return broadcast(0.0f);
}

// What three neighbouring taps read for 16 outputs, in order.
struct Three {
  Vec taps[3];
};

// Of outputs from `column` on that read every other element of a row, in two Vecs of `low` and `high` lanes.
template <typename T, typename Low, typename High>
inline Three neighbours_apart(const T* row, int64_t column, Vec outside, Low low, High high) {
  const T* from = row + 2 * column;
  Three three;
  split(load(from, low), load(from + kLanes, high), three.taps[1], three.taps[2]);
  three.taps[0] = moved_up(column == 0 ? outside : load(from - kLanes), three.taps[2]);
  return three;
}

// body(low, high) for `lanes` outputs with `left` elements: twice as many as outputs, or one less.
template <typename Body>
inline void split_lanes(int64_t left, Full, Body body) {
  if (left >= 2 * kLanes) return body(Full{}, Full{});
  body(Full{}, Tail(left - kLanes));
}
template <typename Body>
inline void split_lanes(int64_t left, Tail, Body body) {
  if (left > kLanes) return body(Full{}, Tail(left - kLanes));
  if (left == kLanes) return body(Full{}, None{});
  body(Tail(left), None{});
}

}  // namespace
}  // namespace tcim_lite::cpu
