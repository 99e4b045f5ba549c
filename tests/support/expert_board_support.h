#pragma once
// What the tests of the expert dispatch share: a model, routed layers with made-up activations, an arena with
// chosen residents, and workers in a thread or in a forked process.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu-expert-worker/board_server.h"
#include "gpu-worker/expert_dispatch.h"
#include "services/model/moe_executor.h"
#include "services/sys/process.h"

namespace strata::gpu_worker {

inline model::ModelWeights open_model(const std::string& path) {
  auto file = gguf::GgufFile::open(path);
  EXPECT_TRUE(file) << file.error().message();
  auto weights = model::load_model(*file);
  EXPECT_TRUE(weights) << weights.error().message();
  return std::move(*weights);
}

inline std::vector<model::LayerExperts> experts_of(const model::ModelWeights& weights) {
  std::vector<model::LayerExperts> layers;
  for (const auto& layer : weights.layers) layers.push_back(layer.moe.experts);
  return layers;
}

// Rows of made-up activations and a made-up router choice.
struct MadeUpLayer {
  MadeUpLayer(const model::ModelWeights& weights, uint32_t layer, uint32_t tokens, quant::Numerics numerics,
              uint32_t seed)
      : values(std::size_t{tokens} * weights.config.hidden),
        input(values.data(), tokens, weights.config.hidden, weights.config.hidden) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    const model::LayerExperts& experts = weights.layers[layer].moe.experts;
    const expert::ExpertWeights first = experts.expert(0);
    if (quant::needs_q8(first.gate.type, numerics) || quant::needs_q8(first.up.type, numerics))
      input.ensure_q8();
    const uint32_t top_k = weights.config.experts_used;
    std::vector<uint16_t> all(experts.count);
    for (uint16_t e = 0; e < all.size(); ++e) all[e] = e;
    for (uint32_t token = 0; token < tokens; ++token) {
      std::shuffle(all.begin(), all.end(), random);
      chosen.insert(chosen.end(), all.begin(), all.begin() + top_k);
    }
    routed = {.layer = layer, .tokens = tokens, .top_k = top_k, .input = &input, .experts = chosen.data()};
  }
  MadeUpLayer(const MadeUpLayer&) = delete;

  std::vector<float> values;
  quant::Activations input;
  std::vector<uint16_t> chosen;
  model::RoutedLayer routed;
};

// One share of the experts in an arena of its own.
class ChosenResidents final : public ResidentExperts {
 public:
  // resident(layer, expert) chooses.
  ChosenResidents(const model::ModelWeights& weights,
                  const std::function<bool(uint32_t, uint32_t)>& resident) {
    for (uint32_t layer = 0; layer < weights.layers.size(); ++layer) {
      const model::LayerExperts& experts = weights.layers[layer].moe.experts;
      for (uint32_t e = 0; e < experts.count; ++e) {
        if (!resident(layer, e)) continue;
        auto& slot = slots_[{layer, e}];
        slot.resize(experts.record_bytes() + model::kExpertPartAlignment);
        experts.write_record(e, aligned(slot));
      }
    }
  }
  const std::byte* record(uint32_t layer, uint32_t expert) const override {
    const auto slot = slots_.find({layer, expert});
    return slot == slots_.end() ? nullptr : aligned(slot->second);
  }

 private:
  static std::byte* aligned(std::vector<std::byte>& bytes) {
    return const_cast<std::byte*>(aligned(std::as_const(bytes)));
  }
  static const std::byte* aligned(const std::vector<std::byte>& bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (model::kExpertPartAlignment - address % model::kExpertPartAlignment) %
                              model::kExpertPartAlignment;
  }
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::byte>> slots_;
};

// A worker in a thread of this process, on the same mapping, so that ThreadSanitizer sees both sides. Never
// to be lost: fencing it would end the test.
class ThreadWorker {
 public:
  ThreadWorker(ExpertWorkers& workers, const std::string& name, std::span<const model::LayerExperts> layers,
               uint32_t threads = 1)
      : server_({.layers = layers,
                 .threads = threads,
                 .wait = {.yield = true, .park_after_us = 200}}) {
    auto attached = workers.attach(name, static_cast<uint32_t>(getpid()), [] {});
    EXPECT_TRUE(attached) << attached.error().message();
    attached_ = *attached;
    thread_ = std::thread(
        [this] { served_ = server_.serve(attached_->board, [this] { return stopping_.load(); }); });
  }
  ~ThreadWorker() {
    stopping_ = true;
    thread_.join();
    EXPECT_TRUE(served_.ok()) << served_.message();
  }
  const AttachedWorker& attached() const { return *attached_; }

 private:
  cpu_expert_worker::BoardServer server_;
  std::shared_ptr<AttachedWorker> attached_;
  std::atomic<bool> stopping_{false};
  Status served_;
  std::thread thread_;
};

// A worker process. It is forked before this process starts threads, waits for its board, and serves it as a
// stranger would.
class ForkedWorker {
 public:
  // serve() runs in the child with its own mapping of the board.
  explicit ForkedWorker(const std::function<void(shm::Board&)>& serve) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      sys::die_with_parent();
      Handover handover{};
      if (read(ends[0], &handover, sizeof(handover)) != static_cast<ssize_t>(sizeof(handover))) _exit(4);
      auto board = shm::Board::attach(handover.name, handover.bytes, handover.instance);
      if (!board) _exit(3);
      serve(*board);
      _exit(0);
    }
    close(ends[0]);
    handover_ = sys::FileDescriptor(ends[1]);
    auto opened = sys::ProcessHandle::open(static_cast<uint32_t>(pid));
    EXPECT_TRUE(opened);
    process_ = std::move(*opened);
  }
  ~ForkedWorker() {
    EXPECT_TRUE(process_.kill_and_wait(60'000));
    sys::reap(process_);
  }

  void attach(ExpertWorkers& workers, const std::string& name) {
    auto attached = workers.attach(name, process_.pid(), {});
    ASSERT_TRUE(attached) << attached.error().message();
    attached_ = *attached;
    segment_ = (*attached)->board.segment().name();
    segment_bytes_ = (*attached)->board.segment().bytes();
    instance_ = (*attached)->board.segment().instance_id();
    Handover handover{.name = {}, .bytes = segment_bytes_, .instance = instance_};
    segment_.copy(handover.name, sizeof(handover.name) - 1);
    ASSERT_EQ(write(handover_.get(), &handover, sizeof(handover)), static_cast<ssize_t>(sizeof(handover)));
  }

  const sys::ProcessHandle& process() const { return process_; }
  const std::shared_ptr<AttachedWorker>& attached() const { return attached_; }
  bool board_can_be_attached() const {
    return shm::Board::attach(segment_, segment_bytes_, instance_).has_value();
  }

 private:
  struct Handover {
    char name[128];
    uint64_t bytes;
    uint64_t instance;
  };
  sys::FileDescriptor handover_;
  sys::ProcessHandle process_;
  std::shared_ptr<AttachedWorker> attached_;
  std::string segment_;
  uint64_t segment_bytes_ = 0, instance_ = 0;
};

// The parts of one layer as LocalExperts computes them; (tokens * top_k, hidden).
inline std::vector<float> reference_parts(const model::ModelWeights& weights, const MadeUpLayer& layer,
                                          quant::Numerics numerics) {
  model::LocalExperts local(weights, numerics);
  local.begin(layer.routed);
  std::vector<float> values;
  for (const float* part : local.finish()) values.insert(values.end(), part, part + weights.config.hidden);
  return values;
}

// The same through a dispatch, as a window of one layer.
inline std::vector<float> dispatched_parts(ExpertDispatch& dispatch, const model::ModelWeights& weights,
                                           const MadeUpLayer& layer) {
  dispatch.begin(layer.routed);
  std::vector<float> values;
  for (const float* part : dispatch.finish()) values.insert(values.end(), part, part + weights.config.hidden);
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace strata::gpu_worker
