// What this machine can do at most, measured: the roofs that results are compared with. Each call takes about a second
// or less and is a best of several tries, because a roof is what was reached at all.
#pragma once

namespace tcim_lite::bench {

// Bytes per second read from DRAM by `threads` threads together.
double read_bandwidth(int threads);

// int8 multiply-adds count as two operations: VPDPBUSD on zmm where the CPU has it, VPMADDUBSW chains on ymm otherwise
// (a lower roof, as that is what such a CPU offers). 0 on other machines.
double int8_peak(int threads);

// Nanoseconds for a cache line to pass from one core to another, one way: about 40 inside a cache complex, about 190
// between two. Says which placement a virtual machine has at the moment.
double core_to_core_ns();

}  // namespace tcim_lite::bench
