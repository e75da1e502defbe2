// How many images a second, and how long each takes, when several streams share a device: a module and a stream per
// thread, one copy of the weights.
//
//   image_streams MODEL.hmm [streams] [runs] [INPUT]
//
// INPUT holds the bytes of the model's first input, as examples/image_classification.py --save-input writes them;
// without it the input is zeros, as all further inputs are. Every run of every stream must give the same outputs: a
// difference is an error.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>

#include "tcim/tcim_runtime.h"

namespace {

using Clock = std::chrono::steady_clock;

void Check(tcim::Status status, const std::string& what) {
  if (status != tcim::OK) throw std::runtime_error(what + ": " + tcim::GetLastError());
}

// Lets its threads go when all have arrived.
class Barrier {
 public:
  explicit Barrier(int threads) : missing_(threads) {}
  void Arrive() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (--missing_ == 0) all_here_.notify_all();
    all_here_.wait(lock, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int missing_;
};

struct Worker {
  std::vector<double> latencies_ms;      // of each run: input set, run, outputs read
  std::vector<std::vector<char>> first;  // bytes of each output of the first run
  Clock::time_point begun, ended;
  std::string error;
};

std::vector<std::vector<char>> ReadOutputs(const tcim::Module& module) {
  std::vector<std::vector<char>> outputs;
  for (int i = 0; i < module.GetOutputNum(); ++i) {
    const tcim::Tensor tensor = module.GetOutput(module.GetOutputName(i));
    Check(tensor.GetInitStatus(), "GetOutput");
    const auto* bytes = static_cast<const char*>(tensor.Data());
    outputs.emplace_back(bytes, bytes + tensor.MemSize());
  }
  return outputs;
}

// Whatever happens in here, the barrier must see this thread: the others wait for it.
void RunStream(const std::string& path, const tcim::Module::WeightManager& weights, std::vector<char> input, int runs,
               Barrier& start, Worker& worker) {
  bool arrived = false;
  try {
    tcim::Module module;
    Check(module.LoadModel(path, tcim::Module::Option(weights)), "loading " + path);
    tcim::Stream stream;
    Check(module.SetStream(stream), "SetStream");
    const std::string name = module.GetInputName(0);
    const auto info = module.GetInputInfo(name).AsContiguous();
    if (input.empty()) input.assign(info.MemSize(), 0);
    if (input.size() != info.MemSize()) {
      throw std::runtime_error("the input file has " + std::to_string(input.size()) + " bytes, expected " +
                               std::to_string(info.MemSize()));
    }
    const tcim::Tensor image = tcim::Tensor::CreateHostTensor(info, input.size(), input.data());
    for (int i = 1; i < module.GetInputNum(); ++i) {  // set once: inputs keep their values
      const std::string other = module.GetInputName(i);
      Check(module.SetInput(other, tcim::Tensor::CreateHostTensor(module.GetInputInfo(other).AsContiguous())), other);
    }
    const auto one = [&] {
      Check(module.SetInput(name, image), "SetInput");
      Check(module.Run(), "Run");  // returns at once; the runs of other streams overlap
      Check(module.Sync(), "Sync");
      return ReadOutputs(module);
    };
    worker.first = one();  // the first run touches memory for the first time and is not counted
    arrived = true;
    start.Arrive();
    worker.begun = Clock::now();
    for (int run = 0; run < runs; ++run) {
      const auto before = Clock::now();
      const auto outputs = one();
      worker.latencies_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
      if (outputs != worker.first) throw std::runtime_error("run " + std::to_string(run) + " gave other outputs");
    }
    worker.ended = Clock::now();
  } catch (const std::exception& error) {
    worker.error = error.what();
    if (!arrived) start.Arrive();
  }
}

// The smallest value that `percent` of the sorted values do not exceed.
double Percentile(const std::vector<double>& sorted, int percent) {
  const auto rank = size_t(std::ceil(percent / 100.0 * double(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

// The outputs' infos, and where the largest value of output 0 is, from its bytes.
void PrintOutputs(const std::string& path, std::vector<char> bytes) {
  const auto module = tcim::Module::LoadFromFile(path);
  for (int i = 0; i < module.GetOutputNum(); ++i) {
    const std::string name = module.GetOutputName(i);
    std::cout << "output " << name << ": " << module.GetOutputInfo(name) << std::endl;
  }
  const auto info = module.GetOutputInfo(module.GetOutputName(0)).AsContiguous();
  const auto values = tcim::Tensor::CreateHostTensor(info, bytes.size(), bytes.data()).AsType(tcim::FLOAT32);
  const auto* first = static_cast<const float*>(values.Data());
  const auto at = std::max_element(first, first + values.MemSize() / sizeof(float)) - first;
  std::cout << "output 0 is largest at " << at << ", in all runs" << std::endl;
}

void Measure(const std::string& path, int streams, int runs, const std::vector<char>& input) {
  const auto weights = tcim::Module::WeightManager::CreateWeightManager(0);
  std::vector<Worker> workers(streams);
  std::vector<std::thread> threads;
  Barrier start(streams);
  for (Worker& worker : workers) {
    threads.emplace_back([&] { RunStream(path, weights, input, runs, start, worker); });
  }
  for (auto& thread : threads) thread.join();

  std::vector<double> all;
  for (int i = 0; i < streams; ++i) {
    const Worker& worker = workers[i];
    if (!worker.error.empty()) throw std::runtime_error("stream " + std::to_string(i) + ": " + worker.error);
    if (worker.first != workers[0].first) {
      throw std::runtime_error("stream " + std::to_string(i) + " gave other outputs than stream 0");
    }
    all.insert(all.end(), worker.latencies_ms.begin(), worker.latencies_ms.end());
  }
  const auto by_begin = [](const Worker& a, const Worker& b) { return a.begun < b.begun; };
  const auto by_end = [](const Worker& a, const Worker& b) { return a.ended < b.ended; };
  const auto begun = std::min_element(workers.begin(), workers.end(), by_begin)->begun;
  const auto ended = std::max_element(workers.begin(), workers.end(), by_end)->ended;
  const double seconds = std::chrono::duration<double>(ended - begun).count();
  std::sort(all.begin(), all.end());
  PrintOutputs(path, workers[0].first[0]);
  std::cout << std::fixed << std::setprecision(2) << streams << " streams, " << all.size() << " runs in " << seconds
            << " s: " << double(all.size()) / seconds << " runs/s" << std::endl;
  std::cout << "latency in ms: p50 " << Percentile(all, 50) << ", p90 " << Percentile(all, 90) << ", p99 "
            << Percentile(all, 99) << ", max " << all.back() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const int streams = argc > 2 ? std::atoi(argv[2]) : 4, runs = argc > 3 ? std::atoi(argv[3]) : 100;
  if (argc < 2 || argc > 5 || streams < 1 || streams > 64 || runs < 1) {
    std::cerr << "usage: image_streams MODEL.hmm [streams, 1 to 64] [runs of each] [INPUT]" << std::endl;
    return 2;
  }
  try {
    std::vector<char> input;
    if (argc > 4) {
      std::ifstream file(argv[4], std::ios::binary);
      if (!file) throw std::runtime_error(std::string("cannot read ") + argv[4]);
      input.assign(std::istreambuf_iterator<char>(file), {});
    }
    Measure(argv[1], streams, runs, input);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
