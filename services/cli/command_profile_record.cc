// strata profile record: which experts a model really uses, recorded from a running cluster.
#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "services/cli/chat_session.h"
#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/profile_build.h"
#include "services/cli/profile_prompts.h"
#include "services/cli/routing_recorder.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

std::atomic<bool> stop_asked{false};  // by a signal
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may not wait");

Result<std::vector<std::string>> prompts_of(const std::string& path) {
  if (path.empty()) return built_in_prompts();
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::kNotFound, "{}: cannot be read", path);
  std::ostringstream text;
  text << in.rdbuf();
  auto prompts = read_prompts(text.str());
  if (prompts.empty()) return fail(Code::kInvalidArgument, "{}: holds no prompt", path);
  return prompts;
}

// Greedy and seeded, so that a profile recorded twice is the same profile. Returns the answer's tokens.
Result<uint64_t> run_prompt(const Url& url, const std::string& prompt, uint32_t max_tokens) {
  json::object message{{"role", "user"}, {"content", prompt}};
  json::object body{{"model", "default"},
                    {"messages", json::array{message}},
                    {"temperature", 0},
                    {"seed", 1},
                    {"max_tokens", max_tokens}};
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = json::serialize(body);
  TRY(HttpResponse response, http_request(url, request));
  if (response.status != 200)
    return fail(Code::kUnavailable, "{} (HTTP {})", error_text(response.body), response.status);
  boost::system::error_code error;
  json::value parsed = json::parse(response.body, error);
  const json::value* tokens = error ? nullptr : parsed.find_pointer("/usage/completion_tokens", error);
  if (tokens == nullptr || !tokens->is_number()) return fail(Code::kDataLoss, "the answer has no usage");
  return tokens->to_number<uint64_t>();
}

Status run_prompts(const ProfileRecordOptions& options) {
  TRY(const auto prompts, prompts_of(options.prompts));
  TRY(const Url url, api_url("", options.run_dir));
  for (std::size_t i = 0; i < prompts.size() && !stop_asked.load(); ++i) {
    TRY(const uint64_t answered, run_prompt(url, prompts[i], options.max_tokens));
    fmt::print(stderr, "{}/{}: {} tokens\n", i + 1, prompts.size(), answered);
  }
  return {};
}

void watch(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!stop_asked.load() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

Status write(const ProfileRecordOptions& options, const RecordedRouting& recorded) {
  if (recorded.dropped_rows > 0)
    fmt::print(stderr, "strata: {} tokens came faster than they could be recorded and are missing\n",
               recorded.dropped_rows);
  if (recorded.trace.conversations.empty())
    return fail(Code::kUnavailable, "nothing was computed while recording");
  if (!options.trace.empty()) {
    TRY_OK(residency::write_routing_trace(recorded.trace, options.trace));
    uint64_t tokens = 0;
    for (const auto& conversation : recorded.trace.conversations) tokens += conversation.tokens.size();
    fmt::print("{}: {} conversations, {} tokens, {} layers of {} experts\n", options.trace,
               recorded.trace.conversations.size(), tokens, recorded.trace.layers, recorded.trace.experts);
  }
  if (options.out.empty()) return {};
  auto profile = profile_of(recorded.trace);
  if (!profile) return fail(Code::kUnavailable, "no token was generated while recording");
  profile->model_fingerprint = recorded.model_fingerprint;
  TRY_OK(residency::write_profile(*profile, options.out));
  fmt::print("{}: {} layers of {} experts, {} answer tokens\n", options.out, profile->layers,
             profile->experts, profile->tokens);
  return {};
}

Status record(const ProfileRecordOptions& options) {
  TRY_OK(get_cluster(options.run_dir).map([](const auto&) {}));  // says it if none runs there
  TRY(const auto recorder, RoutingRecorder::begin(options.run_dir));
  if (options.seconds > 0) {
    fmt::print(stderr, "recording for {:g} s what others ask; Ctrl-C ends it and writes what there is\n",
               options.seconds);
    watch(options.seconds);
  } else {
    TRY_OK(run_prompts(options));
  }
  TRY(const RecordedRouting recorded, recorder->end());
  return write(options, recorded);
}

}  // namespace

int run_profile_record(const ProfileRecordOptions& options) {
  if (options.out.empty() && options.trace.empty()) {
    return report(Status(Code::kInvalidArgument, "nothing to write: --out names a profile, --trace a trace"),
                  kExitFault);
  }
  const auto stop = [](int) { stop_asked.store(true); };
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  const Status done = record(options);
  return done.ok() ? 0 : report(done, exit_code_of(done));
}

}  // namespace strata::cli
