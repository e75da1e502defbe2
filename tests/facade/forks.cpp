// A process forks while its threads run models without a pause: argv[1] is a model.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "tcim/tcim_runtime.h"

static bool runs(const std::string& path) { return tcim::Module(path).Run(true) == tcim::OK; }

int main(int, char** argv) {
  const std::string path = argv[1];
  alarm(60);  // it takes some milliseconds
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      tcim::Module module(path);
      while (!stop) module.Run(true);
    });
  }
  int failed = 0;
  for (int i = 0; i < 10; i++) {
    const pid_t child = fork();
    if (child == 0) _exit(runs(path) ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  printf("%d failed\n", failed);
  return failed;
}
