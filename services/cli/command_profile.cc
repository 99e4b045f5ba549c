// strata profile: which experts a model really uses, recorded from a running cluster.
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <numeric>
#include <sstream>

#include "services/cli/chat_session.h"
#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/profile_prompts.h"
#include "services/gguf/gguf_file.h"
#include "services/residency/profile.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

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

// What was used between two looks, while answering.
Result<residency::Profile> difference(const v1::GetUsageResponse& before, const v1::GetUsageResponse& after) {
  if (before.model_fingerprint() != after.model_fingerprint() ||
      before.decode_counts_size() != after.decode_counts_size()) {
    return fail(Code::kAborted, "the model changed while recording");
  }
  if (after.decode_counts_size() != static_cast<int>(after.layers() * after.experts())) {
    return fail(Code::kDataLoss, "the cache manager's counts do not fit its layers and experts");
  }
  residency::Profile profile;
  profile.model_fingerprint = after.model_fingerprint();
  profile.layers = after.layers();
  profile.experts = after.experts();
  for (int i = 0; i < after.decode_counts_size(); ++i) {
    if (after.decode_counts(i) < before.decode_counts(i)) {
      return fail(Code::kAborted, "the gpu-worker was restarted while recording");
    }
    profile.counts.push_back(after.decode_counts(i) - before.decode_counts(i));
  }
  return profile;
}

Result<residency::Profile> record(const ProfileRecordOptions& options) {
  TRY(auto prompts, prompts_of(options.prompts));
  TRY(std::string address, api_url("", options.run_dir));
  TRY(Url url, parse_url(address));
  TRY(v1::GetUsageResponse before, get_usage(options.run_dir));
  uint64_t tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    TRY(uint64_t answered, run_prompt(url, prompts[i], options.max_tokens));
    tokens += answered;
    fmt::print(stderr, "{}/{}: {} tokens\n", i + 1, prompts.size(), answered);
  }
  TRY(v1::GetUsageResponse after, get_usage(options.run_dir));
  TRY(residency::Profile profile, difference(before, after));
  profile.tokens = tokens;
  if (std::all_of(profile.counts.begin(), profile.counts.end(), [](uint64_t count) { return count == 0; })) {
    return fail(Code::kFailedPrecondition, "no expert use was counted; is the cache manager attached?");
  }
  return profile;
}

// How much of a layer's use its most used experts carry: share of the top tenth and quarter, and how many
// make up half.
std::string layer_line(const residency::Profile& profile, uint32_t layer, uint32_t top) {
  std::vector<uint64_t> counts(profile.counts.begin() + int64_t{layer} * profile.experts,
                               profile.counts.begin() + (int64_t{layer} + 1) * profile.experts);
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  auto share_of = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t i = 0; i < first; ++i) sum += static_cast<double>(counts[order[i]]);
    return total > 0 ? 100 * sum / total : 0;
  };
  std::size_t half = 0;
  while (half < order.size() && share_of(half) < 50) ++half;
  std::string line = fmt::format("{:5}  {:6.1f}%  {:6.1f}%  {:8}  ", layer, share_of((order.size() + 9) / 10),
                                 share_of((order.size() + 3) / 4), half);
  for (std::size_t i = 0; i < std::min<std::size_t>(top, order.size()); ++i) {
    line += fmt::format(" {}:{:.1f}%", order[i],
                        total > 0 ? 100 * static_cast<double>(counts[order[i]]) / total : 0);
  }
  return line;
}

}  // namespace

int run_profile_record(const ProfileRecordOptions& options) {
  auto profile = record(options);
  if (!profile) return report(profile.error(), exit_code_of(profile.error()));
  if (Status written = residency::write_profile(*profile, options.out); !written.ok())
    return report(written, kExitFailed);
  fmt::print("{}: {} layers of {} experts, {} answer tokens\n", options.out, profile->layers,
             profile->experts, profile->tokens);
  return 0;
}

int run_profile_show(const ProfileShowOptions& options) {
  std::string fingerprint;
  if (!options.model.empty()) {
    auto model = gguf::GgufFile::open(options.model);
    if (!model) return report(model.error(), kExitFault);
    fingerprint = model->fingerprint();
  }
  auto profile = residency::read_profile(options.path, fingerprint);
  if (!profile) return report(profile.error(), kExitFault);
  fmt::print("model {}, {} layers of {} experts, {} answer tokens\n\n", profile->model_fingerprint,
             profile->layers, profile->experts, profile->tokens);
  fmt::print("layer  top 10%  top 25%  for half   most used (expert:share)\n");
  for (uint32_t layer = 0; layer < profile->layers; ++layer)
    fmt::print("{}\n", layer_line(*profile, layer, options.top));
  return 0;
}

}  // namespace strata::cli
