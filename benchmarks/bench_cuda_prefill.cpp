// What a prompt costs on a GPU, in chunks of ROWS tokens from DEPTH cached ones on until END (one chunk without it).
//
//   bench_cuda_prefill SHAPE FORMAT ROWS DEPTH [END [REPEATS]]    SHAPE 0.6B, 1.7B, 4B or 8B; FORMAT w4, w8 or f16
//
// Prints the sum of the chunks' median times, and the rate of the Linears' operations in it.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "cuda_model.h"

using namespace tcim_lite;
using namespace tcim_lite::bench;

int main(int count, char** arguments) {
  const int64_t rows = count > 3 ? std::atoll(arguments[3]) : 0, depth = count > 4 ? std::atoll(arguments[4]) : -1;
  const int64_t end = count > 5 ? std::atoll(arguments[5]) : depth + rows;
  if (rows < 2 || depth < 0 || end < depth + rows || !kShapes.count(arguments[1]) || !kFormats.count(arguments[2])) {
    std::cerr << "bench_cuda_prefill SHAPE FORMAT ROWS DEPTH [END [REPEATS]]; SHAPE 0.6B, 1.7B, 4B or 8B; FORMAT w4, "
                 "w8 or f16; ROWS at least 2, END at least DEPTH + ROWS\n";
    return 2;
  }
  try {
    CudaModel model(kShapes.at(arguments[1]), kFormats.at(arguments[2]),
                    {1, rows, std::max<int64_t>(end, 2048), Logits::OfTheLast});
    const int repeats = count > 6 ? std::atoi(arguments[6]) : 20;
    double seconds = 0;
    int64_t chunks = 0;
    for (int64_t position = depth; position + rows <= end; position += rows, ++chunks) {
      model.set_position(position);
      model.seconds(3);
      seconds += model.seconds(repeats);
    }
    std::printf("%s %s rows %lld depth %lld to %lld: %.3f ms, %.0f tokens/s, %.0f TOP/s\n", arguments[1], arguments[2],
                static_cast<long long>(rows), static_cast<long long>(depth),
                static_cast<long long>(depth + chunks * rows), seconds * 1e3, double(chunks * rows) / seconds,
                double(chunks * model.operations()) / seconds / 1e12);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
