// What the gateway itself costs: a process with the gateway alone, asked by this one, which is its engine,
// too. First answers of one token at a fixed rate for half a minute, then the same beside many open streams
// that say nothing, for as long as wanted.
//
//   gateway_load_bench [--idle=2000] [--rate=200] [--seconds=600] [--clients=16] [--json=FILE]
//
// Times count from when a request was due, not from when a client came to send it, until its whole answer was
// there. The stub answers at once, so all of it is added by the gateway, the sockets and gRPC.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "gateway/gateway.h"
#include "gateway/testing/fake_engine.h"
#include "gateway/testing/raw_client.h"
#include "services/base/check.h"
#include "services/base/limits.h"
#include "services/sys/file_limit.h"
#include "services/sys/process.h"

namespace strata::gateway {
namespace {

using Clock = std::chrono::steady_clock;
using testing::RawClient;

struct Options {
  uint32_t idle = 2000, rate = 200, seconds = 600, clients = 16;
  std::string json;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto number = [&](std::string_view name, uint32_t& value) {
      if (!argument.starts_with(name)) return false;
      value = static_cast<uint32_t>(std::stoul(std::string(argument.substr(name.size()))));
      return true;
    };
    if (number("--idle=", options.idle) || number("--rate=", options.rate) ||
        number("--seconds=", options.seconds) || number("--clients=", options.clients))
      continue;
    if (argument.starts_with("--json=")) {
      options.json = argument.substr(7);
      continue;
    }
    fmt::print(stderr, "{}: unknown; the head of gateway_load_bench.cc has the options\n", argument);
    std::exit(2);
  }
  return options;
}

// In a process of its own, so that its memory is its own: writes its port and serves until it is killed.
[[noreturn]] void serve(const std::string& run_dir, const Options& options, int port_pipe) {
  config::Settings settings;
  settings.model_path.set({STRATA_SOURCE_DIR "/models/strata-demo.gguf"});
  settings.gateway_listen.set("127.0.0.1:0");
  settings.cpu_experts_workers.set(1);
  // The stub takes all of them at once; the gateway's own bound is what it has for a real engine and its
  // queue.
  settings.gateway_queue_limit.set(std::min(options.idle + 2 * options.clients, kQueueLimitMax));
  auto gateway = Gateway::start({.settings = &settings, .run_dir = run_dir, .config_hash = "bench"});
  CHECK(gateway.has_value(), "{}", gateway.error().message());
  const std::string& address = (*gateway)->address();
  const auto port = static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  CHECK(write(port_pipe, &port, sizeof(port)) == sizeof(port));
  for (;;) pause();
}

// Every prompt is another one, so that states come and go in the index of known prefixes, too.
std::string body(uint64_t number, uint32_t tokens, bool stream) {
  return fmt::format(
      R"({{"messages":[{{"role":"user","content":"Of the violins on the shelf over there, which is number {}, and who built it?"}}],)"
      R"("max_tokens":{},"stream":{}}})",
      number, tokens, stream);
}

constexpr uint32_t kAloneSeconds = 30;

struct Measured {
  std::vector<double> milliseconds;
  uint32_t failures = 0;
  double seconds = 0;
  std::vector<double> rss_mib;  // one a second

  double quantile(double q) const {
    return milliseconds[std::min(milliseconds.size() - 1,
                                 static_cast<std::size_t>(q * static_cast<double>(milliseconds.size())))];
  }
};

// Open loop: request i is due at i / rate.
Measured ask_steadily(const Options& options, uint32_t seconds, uint16_t port, uint32_t gateway_pid) {
  const uint64_t total = uint64_t{options.rate} * seconds;
  std::vector<Measured> parts(options.clients);
  std::atomic<bool> over = false;
  const auto begin = Clock::now() + std::chrono::milliseconds(100);
  std::vector<std::thread> clients;
  for (uint32_t c = 0; c < options.clients; ++c) {
    clients.emplace_back([&, c] {
      RawClient client(port);
      for (uint64_t i = c; i < total; i += options.clients) {
        const auto due = begin + std::chrono::nanoseconds(i * 1'000'000'000 / options.rate);
        std::this_thread::sleep_until(due);
        client.request("POST", "/v1/chat/completions", body(i, 1, false));
        if (client.response().status != 200) ++parts[c].failures;
        parts[c].milliseconds.push_back(
            std::chrono::duration<double, std::milli>(Clock::now() - due).count());
      }
    });
  }
  Measured all;
  std::thread watch([&] {
    while (!over) {
      all.rss_mib.push_back(static_cast<double>(sys::rss_bytes(gateway_pid)) / (1 << 20));
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  });
  for (std::thread& client : clients) client.join();
  all.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  over = true;
  watch.join();
  for (const Measured& part : parts) {
    all.milliseconds.insert(all.milliseconds.end(), part.milliseconds.begin(), part.milliseconds.end());
    all.failures += part.failures;
  }
  std::ranges::sort(all.milliseconds);
  return all;
}

std::string report(const Options& options, uint32_t idle, const Measured& measured) {
  const auto& rss = measured.rss_mib;
  const double most = *std::ranges::max_element(rss);
  fmt::print(
      "{:5} idle streams: {:6} answers, {:.1f} a second (wanted {}), {} failed; ms p50 {:.2f}, p99 {:.2f}, "
      "max {:.1f}; gateway MiB first {:.1f}, "
      "half way {:.1f}, last {:.1f}, most {:.1f}\n",
      idle, measured.milliseconds.size(),
      static_cast<double>(measured.milliseconds.size()) / measured.seconds, options.rate, measured.failures,
      measured.quantile(0.5), measured.quantile(0.99), measured.milliseconds.back(), rss.front(),
      rss[rss.size() / 2], rss.back(), most);
  return fmt::format(
      R"({{"idle":{},"answers":{},"per_second":{:.2f},"failures":{},"p50_ms":{:.3f},"p99_ms":{:.3f},"max_ms":{:.3f},)"
      R"("rss_mib_first":{:.2f},"rss_mib_half":{:.2f},"rss_mib_last":{:.2f},"rss_mib_most":{:.2f}}})",
      idle, measured.milliseconds.size(),
      static_cast<double>(measured.milliseconds.size()) / measured.seconds, measured.failures,
      measured.quantile(0.5), measured.quantile(0.99), measured.milliseconds.back(), rss.front(),
      rss[rss.size() / 2], rss.back(), most);
}

int run(const Options& options) {
  sys::raise_file_limit();
  std::string run_dir = (std::filesystem::temp_directory_path() / "strata-gateway-load-XXXXXX").string();
  CHECK(mkdtemp(run_dir.data()) != nullptr);
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  const pid_t gateway = fork();  // before this process has threads
  CHECK(gateway >= 0);
  if (gateway == 0) serve(run_dir, options, pipe_ends[1]);
  uint16_t port = 0;
  CHECK(read(pipe_ends[0], &port, sizeof(port)) == sizeof(port), "the gateway did not start");

  testing::FakeEngine engine(run_dir);
  engine.set_sequences(options.idle + 2 * options.clients);
  engine.keep_at_most(kSequencesMax + kCheckpointsMax);  // as a real one
  engine.set_script({.quiet_after = 1});
  engine.start();
  for (int tries = 0;; ++tries) {
    RawClient client(port);
    client.request("GET", "/ready");
    if (client.response().status == 200) break;
    CHECK(tries < 600, "the gateway does not get ready");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  const auto pid = static_cast<uint32_t>(gateway);
  std::string json =
      report(options, 0, ask_steadily(options, std::min(options.seconds, kAloneSeconds), port, pid));
  std::vector<std::unique_ptr<RawClient>> idle;
  for (uint32_t i = 0; i < options.idle; ++i) {
    idle.push_back(std::make_unique<RawClient>(port));
    idle.back()->request("POST", "/v1/chat/completions", body(i, 100, true));
  }
  for (auto& client : idle)
    CHECK(client->read_until("\"content\":\""), "a stream did not begin: {}", client->received());
  json += "," + report(options, options.idle, ask_steadily(options, options.seconds, port, pid));
  if (!options.json.empty()) std::ofstream(options.json) << "[" << json << "]\n";

  idle.clear();
  kill(gateway, SIGKILL);
  waitpid(gateway, nullptr, 0);
  engine.die();
  std::filesystem::remove_all(run_dir);
  return 0;
}

}  // namespace
}  // namespace strata::gateway

int main(int argc, char** argv) { return strata::gateway::run(strata::gateway::parse(argc, argv)); }
