#include "services/cli/profile_build.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "services/base/check.h"

namespace strata::cli {

namespace fs = std::filesystem;
using residency::Profile;
using residency::RoutingTrace;
using residency::TokenRole;

namespace {

Profile empty_profile(const RoutingTrace& trace, uint32_t layers) {
  Profile profile{.model_fingerprint = {},
                  .layers = layers,
                  .experts = trace.experts,
                  .tokens = 0,
                  .counts = {},
                  .topics = {}};
  profile.counts.resize(std::size_t{layers} * trace.experts);
  return profile;
}

void count(const RoutingTrace& trace, const RoutingTrace::Conversation& conversation, Profile& profile) {
  for (std::size_t token = 0; token < conversation.tokens.size(); ++token) {
    if (conversation.roles[token] != TokenRole::kGenerated) continue;
    ++profile.tokens;
    for (uint32_t layer = 0; layer < profile.layers; ++layer) {
      for (const uint16_t expert : trace.picks(conversation, token, layer))
        ++profile.counts[std::size_t{layer} * profile.experts + expert];
    }
  }
}

// Everything that was routed, a chunk at a time: prompts tell what a conversation is about, too.
std::vector<residency::Topic> topics_of(const RoutingTrace& trace, uint32_t layers) {
  residency::TopicLearner learner(std::size_t{layers} * trace.experts, {});
  std::vector<uint32_t> uses(std::size_t{layers} * trace.experts);
  for (const RoutingTrace::Conversation& conversation : trace.conversations) {
    const std::size_t tokens = conversation.tokens.size();
    for (std::size_t first = 0; first < tokens; first += residency::TopicLearner::kChunkTokens) {
      const std::size_t end = std::min<std::size_t>(first + residency::TopicLearner::kChunkTokens, tokens);
      std::ranges::fill(uses, 0);
      for (std::size_t token = first; token < end; ++token) {
        for (uint32_t layer = 0; layer < layers; ++layer) {
          for (const uint16_t expert : trace.picks(conversation, token, layer))
            ++uses[std::size_t{layer} * trace.experts + expert];
        }
      }
      learner.add(uses, end - first);
    }
  }
  return learner.topics();
}

uint64_t scaled(uint64_t count, double weight) {
  return static_cast<uint64_t>(std::llround(static_cast<double>(count) * weight));
}

}  // namespace

Profile profile_of(const RoutingTrace& trace, const RoutingTrace::Conversation& conversation,
                   uint32_t layers) {
  Profile profile = empty_profile(trace, layers);
  count(trace, conversation, profile);
  return profile;
}

Result<Profile> profile_of(const RoutingTrace& trace, uint32_t layers) {
  if (layers > trace.layers) {
    return fail(Code::kInvalidArgument, "the trace has {} layers, {} are wanted", trace.layers, layers);
  }
  Profile profile = empty_profile(trace, layers == 0 ? trace.layers : layers);
  for (const RoutingTrace::Conversation& conversation : trace.conversations)
    count(trace, conversation, profile);
  if (profile.tokens == 0)
    return fail(Code::kFailedPrecondition, "the trace has no generated token: a profile counts those only");
  profile.topics = topics_of(trace, profile.layers);
  return profile;
}

void add_to(Profile& sum, const Profile& other) {
  CHECK(sum.counts.size() == other.counts.size(), "{} and {} counts", sum.counts.size(), other.counts.size());
  sum.tokens += other.tokens;
  for (std::size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += other.counts[i];
}

Result<Profile> merge_profiles(std::span<const NamedProfile> profiles, std::span<const double> weights) {
  if (profiles.empty()) return fail(Code::kInvalidArgument, "no profile to merge");
  if (!weights.empty() && weights.size() != profiles.size()) {
    return fail(Code::kInvalidArgument, "--weights: expected one for each of {} profiles, got {}",
                profiles.size(), weights.size());
  }
  const NamedProfile& first = profiles.front();
  Profile sum = first.profile;
  sum.tokens = 0;
  std::ranges::fill(sum.counts, 0);
  residency::TopicLearner learner(sum.counts.size(), {});
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    const double weight = weights.empty() ? 1.0 : weights[i];
    if (!(weight > 0) || weight > 1e6)
      return fail(Code::kInvalidArgument, "--weights: expected numbers above 0 and at most 1e6, got {}",
                  weight);
    Profile part = profiles[i].profile;
    if (part.model_fingerprint != sum.model_fingerprint || part.layers != sum.layers ||
        part.experts != sum.experts) {
      return fail(
          Code::kFailedPrecondition,
          "{} is the profile of model {} ({} layers of {} experts), {} of model {} ({} layers of {} experts)",
          first.name, sum.model_fingerprint, sum.layers, sum.experts, profiles[i].name,
          part.model_fingerprint, part.layers, part.experts);
    }
    part.tokens = scaled(part.tokens, weight);
    for (uint64_t& uses : part.counts) uses = scaled(uses, weight);
    add_to(sum, part);
    for (const residency::Topic& topic : part.topics) learner.add(topic.counts, topic.tokens);
  }
  sum.topics = learner.topics();
  return sum;
}

Result<RoutingTrace> read_traces(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return residency::read_routing_trace(path);
  std::vector<std::string> files;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".bin" && at->is_regular_file(error)) files.push_back(at->path().string());
  }
  if (error) return fail(Code::kNotFound, "{}: cannot be read: {}", path, error.message());
  if (files.empty()) return fail(Code::kNotFound, "{}: holds no trace (*.bin)", path);
  std::ranges::sort(files);
  RoutingTrace all;
  for (const std::string& file : files) {
    TRY(RoutingTrace trace, residency::read_routing_trace(file));
    if (all.conversations.empty()) {
      all = std::move(trace);
      continue;
    }
    if (trace.layers != all.layers || trace.experts != all.experts || trace.used != all.used) {
      return fail(Code::kFailedPrecondition,
                  "{}: {} layers of {} experts, {} a token; {} has {} of {}, {}: not of one model", file,
                  trace.layers, trace.experts, trace.used, files.front(), all.layers, all.experts, all.used);
    }
    std::ranges::move(trace.conversations, std::back_inserter(all.conversations));
  }
  return all;
}

}  // namespace strata::cli
