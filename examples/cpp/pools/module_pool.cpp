#include "module_pool.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace {

void Check(tcim::Status status, const std::string& what) {
  if (status != tcim::OK) throw std::runtime_error(what + ": " + tcim::GetLastError());
}

}  // namespace

ModulePool::ModulePool(int device_id, int workers, int most_modules)
    : device_id_(device_id),
      most_modules_(most_modules),
      option_(tcim::Module::WeightManager::CreateWeightManager(device_id)) {
  if (workers < 1 || most_modules < 1) throw std::runtime_error("a pool needs a worker and a module");
  for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { Work(); });
}

ModulePool::~ModulePool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ModulePool::Load(const std::string& name, const std::string& path, int count) {
  LoadAll(name, count, [&](tcim::Module& module) { Check(module.LoadModel(path, option_), "loading " + path); });
}

void ModulePool::Load(const std::string& name, const void* data, int64_t size, int count) {
  LoadAll(name, count, [&](tcim::Module& module) { Check(module.LoadModel(data, size, option_), "loading " + name); });
}

template <typename LoadOne>
void ModulePool::LoadAll(const std::string& name, int count, LoadOne load_one) {
  for (int i = 0; i < count; ++i) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (Kind& kind = kinds_[name]; kind.count++ == most_modules_) {
        --kind.count;
        throw std::runtime_error(name + " has " + std::to_string(most_modules_) + " modules, the limit of this pool");
      }
    }
    tcim::Module module;
    try {
      load_one(module);  // without the lock: tasks of other modules go on
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      --kinds_[name].count;
      changed_.notify_all();
      throw;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    kinds_[name].free.push_back(std::move(module));
    changed_.notify_all();
  }
}

std::future<Outputs> ModulePool::Submit(Task task) {
  Queued queued{std::move(task), {}};
  auto result = queued.result.get_future();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(queued));
  }
  changed_.notify_one();
  return result;
}

int ModulePool::Count(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kinds_.find(name);
  return found == kinds_.end() ? 0 : found->second.count;
}

bool ModulePool::Next(Queued& queued, tcim::Module& module) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    for (auto each = queue_.begin(); each != queue_.end(); ++each) {
      const auto kind = kinds_.find(each->task.model);
      const bool unknown = kind == kinds_.end() || kind->second.count == 0;
      if (!unknown && kind->second.free.empty()) continue;  // a later task may have a free module
      queued = std::move(*each);
      queue_.erase(each);
      if (unknown) {
        module = tcim::Module();
      } else {
        module = std::move(kind->second.free.back());
        kind->second.free.pop_back();
      }
      return true;
    }
    if (ending_ && queue_.empty()) return false;
    changed_.wait(lock);
  }
}

void ModulePool::Work() {
  tcim::Stream stream;
  Queued queued;
  tcim::Module module;
  while (Next(queued, module)) {
    Outputs outputs;
    std::exception_ptr error;
    try {
      if (!module) throw std::runtime_error("no module " + queued.task.model + " is loaded");
      outputs = Run(module, stream, queued.task);
    } catch (...) {
      error = std::current_exception();
    }
    // The module is free before the result is seen, so that whoever waits for it can use it.
    if (module) {
      std::lock_guard<std::mutex> lock(mutex_);
      kinds_[queued.task.model].free.push_back(std::move(module));
      changed_.notify_all();
    }
    if (error) {
      queued.result.set_exception(error);
    } else {
      queued.result.set_value(std::move(outputs));
    }
  }
  // Others may wait for a task that this thread has finished.
  changed_.notify_all();
}

Outputs ModulePool::Run(tcim::Module& module, const tcim::Stream& stream, const Task& task) const {
  Check(module.SetStream(stream), "SetStream");
  for (const auto& [name, tensor] : task.inputs) Check(module.SetInput(name, tensor), "setting " + name);
  Outputs outputs, own;
  if (task.keep_on_device) {
    for (int i = 0; i < module.GetOutputNum(); ++i) {
      const std::string name = module.GetOutputName(i);
      own[name] = module.GetDevOutput(name);
      outputs[name] = tcim::Tensor::CreateDeviceTensor(module.GetOutputInfo(name), 0, device_id_);
      Check(module.SetOutput(name, outputs[name]), "binding " + name);
    }
  }
  const auto status = module.Run(true, tcim::Module::RunOption().Rounds(task.rounds));
  const std::string reason = tcim::GetLastError();
  // A binding lasts: without this, the next task would write where this one's outputs are.
  for (const auto& [name, tensor] : own) Check(module.SetDevOutput(name, tensor), "binding " + name);
  if (status != tcim::OK) throw std::runtime_error("running " + task.model + ": " + reason);
  if (!task.keep_on_device) {
    for (int i = 0; i < module.GetOutputNum(); ++i) {
      const std::string name = module.GetOutputName(i);
      outputs[name] = module.GetOutput(name);
      Check(outputs[name].GetInitStatus(), "reading " + name);
    }
  }
  return outputs;
}
