// Owns the example of a session in an engine that has an event loop of its own: a task for each
// token, between which the loop serves whatever else is waiting. No thread of Lathe's calls back.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "lathe/lathe.hpp"

namespace {

using namespace lathe::api;

// The engine's loop: tasks in order, each of which may post others.
class EventLoop {
 public:
  void post(std::function<void()> task) { tasks_.push_back(std::move(task)); }
  void run() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

// Decodes from the GPU where there is one, else from the CPU.
Result<Session> open_session(const Model& model) {
  auto options = sized<lathe_session_options>();
  options.context = 256;
  auto session = Session::open(model, options);
  if (session || session.error().status != LATHE_NO_DRIVER) return session;
  std::printf("There is no GPU here; the CPU decodes, slower.\n");
  options.executor = LATHE_EXECUTOR_CPU;
  return Session::open(model, options);
}

class Generation {
 public:
  Generation(EventLoop& loop, Session session, int tokens)
      : loop_(loop), session_(std::move(session)), left_(tokens) {}

  void start(std::int32_t token) {
    loop_.post([this, token] { decode(token); });
  }
  bool failed() const { return failed_; }

 private:
  void decode(std::int32_t token) {
    // On a GPU step() returns at once; the next task asks for the outcome.
    if (const auto stepped = session_.step(token); !stepped) return fail(stepped.error());
    loop_.post([this] {
      const auto next = session_.sampled();
      if (!next) return fail(next.error());
      std::printf("%d%s", *next, left_ > 1 ? " " : "\n");
      if (--left_ > 0) decode(*next);
    });
  }
  void fail(const Error& error) {
    std::fprintf(stderr, "%s\n", error.text.c_str());
    failed_ = true;
  }

  EventLoop& loop_;
  Session session_;
  int left_;
  bool failed_ = false;
};

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.text.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::string_view(argv[1]) == "--help") {
    std::fprintf(stderr, "usage: embed_cpp MODEL.gguf\n");
    return argc == 2 ? 0 : 2;
  }
  const auto model = Model::open(argv[1]);
  if (!model) return fail(model.error());
  auto session = open_session(*model);
  if (!session) return fail(session.error());
  const auto info = session->info();
  if (!info) return fail(info.error());
  std::printf("%s, executor %s\n", info->device, info->executor);

  EventLoop loop;
  Generation generation(loop, *std::move(session), 8);
  generation.start(1);
  int served = 0;
  for (int i = 0; i < 4; ++i) loop.post([&] { ++served; });  // the engine's other work
  loop.run();
  std::printf("%d other tasks were served meanwhile\n", served);
  return generation.failed() ? 1 : 0;
}
