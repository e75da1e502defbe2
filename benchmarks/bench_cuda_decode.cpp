// What a decode step costs on a GPU.
//
//   bench_cuda_decode SHAPE FORMAT SLOTS[xTOKENS] POSITION[,POSITION..] [REPEATS]
//                                                   SHAPE 0.6B, 1.7B, 4B, 8B or 30B-A3B; FORMAT w4 (with an 8-bit
//                                                   head), w8 or f16; TOKENS of a slot
//
// Prints the median time of a run, and the rate at which it reads weights and cache.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "cuda_model.h"

using namespace tcim_lite;
using namespace tcim_lite::bench;

int main(int count, char** arguments) {
  if (count < 5 || !kShapes.count(arguments[1]) || !kFormats.count(arguments[2])) {
    std::cerr << "bench_cuda_decode SHAPE FORMAT SLOTS[xTOKENS] POSITION[,POSITION..] [REPEATS]; SHAPE 0.6B, 1.7B, 4B, "
                 "8B or 30B-A3B; "
                 "FORMAT w4, w8 or f16\n";
    return 2;
  }
  try {
    const std::string rows = arguments[3];
    const size_t cross = rows.find('x');
    const int64_t slots = std::atoll(arguments[3]), tokens = cross == rows.npos ? 1 : std::atoll(&rows[cross + 1]);
    CudaModel model(kShapes.at(arguments[1]), kFormats.at(arguments[2]), {slots, tokens, 2048, Logits::OfEveryToken});
    const int repeats = count > 5 ? std::atoi(arguments[5]) : 200;
    std::istringstream positions(arguments[4]);
    for (std::string text; std::getline(positions, text, ',');) {
      const int64_t position = std::atoll(text.c_str());
      model.set_position(position);
      model.seconds(5);
      const double seconds = model.seconds(repeats);
      std::printf("%s %s slots %s position %s: %.3f ms, %.0f tokens/s, %.2f TB/s\n", arguments[1], arguments[2],
                  arguments[3], text.c_str(), seconds * 1e3, double(slots * tokens) / seconds,
                  double(model.bytes(position)) / seconds / 1e12);
    }
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
