// Many small tasks over few modules and few buffers: a module pool runs them, a buffer pool lends their inputs.
//
//   pools MODEL.hmm [tasks] [modules] [workers]
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "buffer_pool.h"
#include "module_pool.h"

namespace {

constexpr int kWaiting = 8;  // tasks that are queued or running at a time

void RunTasks(const std::string& path, int tasks, int modules, int workers) {
  ModulePool pool(0, workers, modules);
  pool.Load("network", path, modules);
  const auto facts = tcim::Module::LoadFromFile(path);  // for its infos only
  BufferPool inputs(BufferPool::kHost, size_t(256) << 20);

  struct Waiting {
    std::vector<BufferPool::Lease> leases;  // the task's inputs: they go back when its result is there
    std::future<Outputs> result;
  };
  std::deque<Waiting> waiting;
  size_t output_bytes = 0;
  int done = 0;
  const auto finish = [&] {
    for (const auto& [name, tensor] : waiting.front().result.get()) output_bytes += tensor.MemSize();
    waiting.pop_front();
    ++done;
  };
  for (int i = 0; i < tasks; ++i) {
    if (waiting.size() == kWaiting) finish();
    Task task;
    task.model = "network";
    Waiting next;
    for (int input = 0; input < facts.GetInputNum(); ++input) {
      const std::string name = facts.GetInputName(input);
      const auto info = facts.GetInputInfo(name).AsContiguous();
      next.leases.push_back(inputs.Get(info.MemSize()));
      std::memset(next.leases.back().Buffer().Data(), 0, info.MemSize());  // an image would be decoded to here
      task.inputs[name] = next.leases.back().Tensor(info);
    }
    next.result = pool.Submit(std::move(task));
    waiting.push_back(std::move(next));
  }
  while (!waiting.empty()) finish();
  std::cout << done << " tasks on " << pool.Count("network") << " modules and " << workers << " workers gave "
            << output_bytes << " bytes; their inputs took " << inputs.Made() << " buffers, " << inputs.Bytes()
            << " bytes" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const int tasks = argc > 2 ? std::atoi(argv[2]) : 100, modules = argc > 3 ? std::atoi(argv[3]) : 2;
  const int workers = argc > 4 ? std::atoi(argv[4]) : 3;
  if (argc < 2 || argc > 5 || tasks < 1 || modules < 1 || workers < 1) {
    std::cerr << "usage: pools MODEL.hmm [tasks] [modules] [workers]" << std::endl;
    return 2;
  }
  try {
    RunTasks(argv[1], tasks, modules, workers);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
