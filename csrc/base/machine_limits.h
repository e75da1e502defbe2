// What this machine can do at most, measured: the roofs that results are compared with. Each call takes about a second
// or less and is a best of several tries, because a roof is what was reached at all. A limit that cannot be measured
// here is 0.
#pragma once

#include <cstddef>
#include <string_view>

namespace tcim_lite {

// Far beyond the caches of common machines. A server may have a third of it as third-level cache: a smaller model is
// then partly read from there, so its roof is the rate over as many bytes as it has.
constexpr size_t kReadBytes = size_t{1} << 30;

// Bytes per second that `threads` threads read together, over and over `bytes` bytes.
double read_bandwidth(int threads, size_t bytes = kReadBytes);

// Operations per second; a multiply-add counts as two. int8 is VPDPBUSD on zmm where the CPU has it, or else VPMADDUBSW
// on zmm, VPDPBUSD on ymm (AVX-VNNI), VPMADDUBSW on ymm. int8_tile is TDPBUSD of AMX. fp32 is FMA on zmm or ymm. A set
// of kernels forced by TCIM_LITE_ISA is held against its own instructions.
double int8_peak(int threads);
double int8_tile_peak(int threads);
double fp32_peak(int threads);

// What int8_peak() measures, "VPDPBUSD zmm"; empty where it measures nothing.
std::string_view int8_instruction();

// Nanoseconds for a cache line to pass from one core to another, one way. Says which placement a virtual machine has at
// the moment: on an AMD server about 40 inside a cache complex, about 190 between two. 0 with one processor, or where
// two threads never ran at the same time.
double core_to_core_ns();

}  // namespace tcim_lite
