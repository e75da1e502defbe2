// Loaded modules by name, and workers that run tasks on whichever module of a name is free.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tcim/tcim_runtime.h"

// Inputs on the host are copied when the task runs and must live until its result is there; inputs on the device must
// be on the pool's.
struct Task {
  std::string model;                           // a name given to Load
  std::map<std::string, tcim::Tensor> inputs;  // by the graph's names; others keep what an earlier task set
  bool keep_on_device = false;                 // outputs stay there, in memory of their own
  int rounds = 1;                              // repetitions of the graph
};

using Outputs = std::map<std::string, tcim::Tensor>;

// Thread-safe. One device. Modules of one name share their weights.
class ModulePool {
 public:
  // Starts `workers` threads with a stream each. `most_modules` is the limit of each name.
  ModulePool(int device_id, int workers, int most_modules);
  // Runs what is queued, then ends the workers.
  ~ModulePool();
  ModulePool(const ModulePool&) = delete;
  ModulePool& operator=(const ModulePool&) = delete;

  // Loads `count` more modules of a name from a file, or from memory, which is only read during the call. Throws
  // std::runtime_error when one cannot be loaded (those before it stay) or the name would have more than the limit.
  void Load(const std::string& name, const std::string& path, int count);
  void Load(const std::string& name, const void* data, int64_t size, int count);

  // Queues a task. A name that was never loaded, and whatever fails in the run, is the future's std::runtime_error.
  std::future<Outputs> Submit(Task task);

  // Loaded modules of a name.
  int Count(const std::string& name) const;

 private:
  struct Queued {
    Task task;
    std::promise<Outputs> result;
  };
  struct Kind {
    int count = 0;
    std::vector<tcim::Module> free;
  };

  template <typename LoadOne>
  void LoadAll(const std::string& name, int count, LoadOne load_one);
  void Work();
  // The first task that has a free module; waits for one. False: the pool ends and the queue is empty.
  bool Next(Queued& queued, tcim::Module& module);
  Outputs Run(tcim::Module& module, const tcim::Stream& stream, const Task& task) const;

  const int device_id_, most_modules_;
  const tcim::Module::Option option_;  // has the weight manager that all loads share
  mutable std::mutex mutex_;           // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Kind> kinds_;
  std::deque<Queued> queue_;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};
