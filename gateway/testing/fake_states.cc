#include "gateway/testing/fake_states.h"

#include <algorithm>

namespace strata::gateway::testing {

std::string fake_identity() {
  const snapshot::StateIdentity identity{.model_fingerprint = "fake",
                                         .numerics = "reproducible",
                                         .kv_format = "float32",
                                         .layout_version = 1,
                                         .page_tokens = 64,
                                         .page_bytes = 64,
                                         .fixed_bytes = 8,
                                         .parts = {{.name = "state", .offset = 0, .bytes = 8}},
                                         .options = ""};
  const auto bytes = snapshot::serialize(identity);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

FakeStates::Begun FakeStates::begin(std::span<const int32_t> tokens, const std::string& name_space) {
  std::scoped_lock lock(mutex_);
  auto best = states_.end();
  for (auto at = states_.begin(); at != states_.end(); ++at) {
    const State& state = at->second;
    if (state.name_space != name_space || state.tokens.size() >= tokens.size()) continue;
    if (!std::ranges::equal(state.tokens, tokens.first(state.tokens.size()))) continue;
    if (best == states_.end() || state.tokens.size() > best->second.tokens.size()) best = at;
  }
  if (best == states_.end()) return {};
  const Begun begun{.tokens = static_cast<uint32_t>(best->second.tokens.size()), .live = best->second.live};
  if (begun.live) {
    say_removed(best->first, /*taken=*/true);
    states_.erase(best);
  }
  return begun;
}

void FakeStates::say_removed(uint64_t id, bool taken) {
  v1::WatchStatesResponse event;
  event.mutable_removed()->set_id(id);
  event.mutable_removed()->set_taken(taken);
  log_.append(std::move(event));
}

void FakeStates::add(State state) {
  std::scoped_lock lock(mutex_);
  const uint64_t id = ++last_id_;
  v1::WatchStatesResponse event;
  v1::StateAdded& added = *event.mutable_added();
  added.set_id(id);
  added.set_source(state.live ? v1::STATE_SOURCE_LIVE : v1::STATE_SOURCE_RUNNING);
  added.set_name_space(state.name_space);
  added.mutable_tokens()->Add(state.tokens.begin(), state.tokens.end());
  log_.append(std::move(event));
  states_.emplace(id, std::move(state));
  if (states_.size() <= states_max_) return;
  say_removed(states_.begin()->first, /*taken=*/false);
  states_.erase(states_.begin());
}

void FakeStates::checkpoint(std::span<const int32_t> tokens, const std::string& name_space) {
  add({.tokens = {tokens.begin(), tokens.end()}, .name_space = name_space, .live = false});
}

void FakeStates::keep(std::span<const int32_t> tokens, const std::string& name_space) {
  if (!tokens.empty()) {
    add({.tokens = {tokens.begin(), tokens.end()}, .name_space = name_space, .live = true});
  }
}

std::vector<std::vector<int32_t>> FakeStates::live() const {
  std::scoped_lock lock(mutex_);
  std::vector<std::vector<int32_t>> out;
  for (const auto& [id, state] : states_) {
    if (state.live) out.push_back(state.tokens);
  }
  return out;
}

std::size_t FakeStates::count() const {
  std::scoped_lock lock(mutex_);
  return states_.size();
}

grpc::Status FakeStates::watch(const grpc::ServerContext& context,
                               grpc::ServerWriter<v1::WatchStatesResponse>& writer) {
  v1::WatchStatesResponse begin;
  begin.mutable_begin()->set_instance_id(instance_);
  begin.mutable_begin()->set_identity(fake_identity());
  return log_.serve(context, begin, writer);
}

}  // namespace strata::gateway::testing
