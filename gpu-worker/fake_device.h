#pragma once
// A device for tests of everything above it: the next token is a hash of all tokens that the sequence has
// been fed, so that any token fed twice, left out or mixed up with another sequence changes the answer. Keeps
// a record of every window.

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/expert_dispatch.h"
#include "gpu-worker/generation.h"
#include "gpu-worker/pages_gate.h"
#include "gpu-worker/resident_table.h"
#include "services/base/check.h"
#include "services/shm/arena.h"

namespace strata::gpu_worker {

inline constexpr int32_t kFakeVocab = 1000;

inline uint64_t fake_hash(std::span<const int32_t> tokens) {
  uint64_t hash = 1469598103934665603u;
  for (int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
  return hash;
}
// What the fake model says after these tokens: 1..kFakeVocab-1. Token 0 is never said.
inline int32_t fake_next_token(std::span<const int32_t> tokens) {
  return static_cast<int32_t>(1 + (fake_hash(tokens) >> 20) % (kFakeVocab - 1));
}
inline std::vector<int32_t> fake_answer(std::vector<int32_t> tokens, std::size_t count) {
  std::vector<int32_t> answer;
  while (answer.size() < count) {
    answer.push_back(fake_next_token(tokens));
    tokens.push_back(answer.back());
  }
  return answer;
}

// Under a mask it says the next token, in a circle, that is allowed.
inline int32_t fake_masked(int32_t token, std::span<const uint32_t> mask) {
  if (mask.empty()) return token;
  const auto allowed = [&](int32_t id) {
    return (mask[static_cast<uint32_t>(id) / 32] >> static_cast<uint32_t>(id) % 32 & 1U) != 0;
  };
  for (int32_t step = 0; step < kFakeVocab; ++step) {
    if (const int32_t id = (token + step) % kFakeVocab; allowed(id)) return id;
  }
  CHECK(false, "the mask allows no token");
  return -1;
}

class FakeDevice final : public Device {
 public:
  struct Row {
    uint32_t sequence;
    int32_t token;
    bool is_prompt, wants;
    uint64_t position;
  };
  using Window = std::vector<Row>;

  explicit FakeDevice(uint32_t sequences, uint32_t slots = 4,
                      std::vector<uint32_t> experts_per_layer = {8, 8})
      : sequences_(sequences) {
    constexpr uint64_t kSlotBytes = 64;
    uint64_t instance = shm::random_instance_id();
    auto name = [&](std::string_view what) { return shm::segment_name("unittest", what, instance); };
    arena_ = must(shm::Segment::create(name("arena"), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                       shm::arena_bytes(slots, kSlotBytes)));
    auto layers = static_cast<uint32_t>(experts_per_layer.size());
    usage_ = must(shm::UsageBoard::create(name("usage"), layers, experts_per_layer[0]));
    residents_ = std::make_unique<ResidentTable>(ResidentTableOptions{
        .table = must(shm::ResidencyTable::create(name("table"), slots, layers, kSlotBytes)),
        .slots = shm::arena_slots(arena_),
        .slot_bytes = kSlotBytes,
        .experts_per_layer = std::move(experts_per_layer)});
  }

  std::string_view type() const override { return "fake"; }
  Result<SequenceId> open_sequence() override {
    for (uint32_t index = 0; index < sequences_.size(); ++index) {
      Sequence& sequence = sequences_[index];
      if (sequence.open) continue;
      sequence = {.open = true, .generation = sequence.generation + 1, .fed = {}, .restored = {}};
      // Whoever copies pages beside windows finds them where they are.
      sequence.fed.reserve(kFedMax);
      return SequenceId{index, sequence.generation};
    }
    return fail(Code::kResourceExhausted, "all sequences are open");
  }
  void close_sequence(SequenceId id) override { at(id).open = false; }

  Status run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) override {
    if (on_window) on_window();
    choices.clear();
    Window window;
    for (uint32_t index = 0; index < rows.size(); ++index) {
      const DeviceRow& row = rows[index];
      // A row whose pages never come is computed all the same.
      if (row.pages != nullptr && !row.pages->wait().ok()) at(row.sequence).restored.reset();
      Sequence& sequence = settled(row.sequence);
      sequence.fed.push_back(row.token);
      if (row.capture) {
        const bool last = index + 1 == rows.size() || rows[index + 1].sequence != row.sequence;
        CHECK(last || captures_within, "a state behind row {} of {}", index, rows.size());
        CHECK(last || !row.is_prompt || sequence.fed.size() % multiple == 0,
              "a prompt is cut behind {} tokens, not at a multiple of {}", sequence.fed.size(), multiple);
        capture(row.sequence, *row.capture);
      }
      bool wants = row.sample.params != nullptr;
      window.push_back({row.sequence.index, row.token, row.is_prompt, wants, row.sample.position});
      if (!wants) continue;
      bool broken = breaks_at_token != 0 && row.token == breaks_at_token;
      choices.push_back(
          {.row = index,
           .usable = !broken,
           .token = {
               .id = fake_masked(fake_next_token(sequence.fed), row.sample.mask), .logprob = 0, .top = {}}});
    }
    routed_.clear();
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (const DeviceRow& row : rows) {
        for (const uint16_t pick : picks_of(row.token, layer)) routed_.push_back(pick);
      }
    }
    windows.push_back(std::move(window));
    return next_status;
  }
  uint32_t prompt_multiple() const override { return multiple; }
  bool captures_within_windows() const override { return captures_within; }
  // Two layers, two experts a token, told by the token.
  static std::vector<uint16_t> picks_of(int32_t token, uint32_t layer) {
    return {static_cast<uint16_t>((token + static_cast<int32_t>(layer)) % 8),
            static_cast<uint16_t>((token + static_cast<int32_t>(layer) + 1) % 8)};
  }
  std::span<const uint16_t> routed() const override { return routed_; }
  // The fixed part is the number and hash of all tokens fed, a page the tokens themselves. They are compared
  // when the state is used: pages may come after the rest.
  void capture(SequenceId from, uint32_t slot) override {
    std::memcpy(slots_.at(slot).data(), fixed_of(settled(from)).data(), layout_.fixed_bytes());
  }
  void restore(SequenceId to, uint32_t slot, uint32_t tokens) override {
    at(to).restored = Restored{.fixed = slots_.at(slot), .tokens = tokens};
  }
  void copy_pages(SequenceId from, SequenceId to, uint32_t tokens) override {
    const std::vector<int32_t>& fed = settled(from).fed;
    CHECK(tokens <= fed.size(), "{} tokens of {}", tokens, fed.size());
    at(to).fed.assign(fed.begin(), fed.begin() + tokens);
  }
  Status read_slot(uint32_t slot, std::span<std::byte> to) override {
    std::ranges::copy(slots_.at(slot), to.begin());
    return {};
  }
  Status write_slot(uint32_t slot, std::span<const std::byte> from) override {
    std::ranges::copy(from, slots_.at(slot).begin());
    return {};
  }
  Status read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) override {
    std::ranges::fill(to, std::byte{0});
    for (const StateLayout::Piece& piece : layout_.page_pieces(page, tokens))
      std::memcpy(to.data(), reinterpret_cast<const std::byte*>(at(from).fed.data()) + piece.at, piece.bytes);
    return {};
  }
  Status write_page(SequenceId to, uint32_t page, uint32_t tokens, std::span<const std::byte> from) override {
    if (on_write_page) on_write_page(page);
    std::vector<int32_t>& fed = at(to).fed;
    for (const StateLayout::Piece& piece : layout_.page_pieces(page, tokens)) {
      fed.resize(std::max<std::size_t>(fed.size(), (piece.at + piece.bytes) / sizeof(int32_t)));
      std::memcpy(reinterpret_cast<std::byte*>(fed.data()) + piece.at, from.data(), piece.bytes);
    }
    return {};
  }
  const StateLayout& state_layout() const override { return layout_; }
  uint32_t checkpoint_slots() const override { return static_cast<uint32_t>(slots_.size()); }

  StageSeconds take_stages() override { return stages; }
  ArenaHandle arena() const override {
    return {.segment = arena_.name(),
            .bytes = arena_.bytes(),
            .instance_id = arena_.instance_id(),
            .slot_count = residents_->slot_count(),
            .slot_bytes = 64};
  }
  ResidentTable& residents() override { return *residents_; }
  const shm::UsageBoard& usage() const override { return usage_; }
  const DispatchCounters& dispatch_counters() const override { return counters_; }
  std::string activity() const override { return "fake device"; }

  const std::vector<int32_t>& fed(SequenceId id) { return settled(id).fed; }
  uint32_t open_sequences() const {
    uint32_t count = 0;
    for (const Sequence& sequence : sequences_) count += sequence.open ? 1 : 0;
    return count;
  }

  std::vector<Window> windows;
  std::function<void()> on_window;                   // before each window, on the loop's thread
  std::function<void(uint32_t page)> on_write_page;  // before each, on the thread that writes
  int32_t breaks_at_token = 0;                       // logits after this token are not usable
  uint32_t multiple = 1;                             // what prompt_multiple() says
  bool captures_within = true;
  Status next_status;
  StageSeconds stages{};

 private:
  static constexpr std::size_t kFedMax = 8192;
  struct Restored {
    std::vector<std::byte> fixed;
    uint32_t tokens = 0;
  };
  struct Sequence {
    bool open = false;
    uint32_t generation = 0;
    std::vector<int32_t> fed;
    std::optional<Restored> restored;
  };
  template <class T>
  static T must(Result<T> result) {
    CHECK(result.has_value(), "{}", result.error().message());
    return std::move(*result);
  }
  Sequence& at(SequenceId id) {
    Sequence& sequence = sequences_.at(id.index);
    CHECK(sequence.open && sequence.generation == id.generation, "sequence {}", id.index);
    return sequence;
  }

  Sequence& settled(SequenceId id) {
    Sequence& sequence = at(id);
    if (const auto restored = std::exchange(sequence.restored, std::nullopt)) {
      CHECK(restored->tokens <= sequence.fed.size(), "{} tokens of {}", restored->tokens,
            sequence.fed.size());
      sequence.fed.resize(restored->tokens);
      CHECK(fixed_of(sequence) == restored->fixed, "the slot holds the state behind other tokens");
    }
    return sequence;
  }
  std::vector<std::byte> fixed_of(const Sequence& sequence) const {
    const std::array<uint64_t, 2> known = {sequence.fed.size(), fake_hash(sequence.fed)};
    std::vector<std::byte> fixed(layout_.fixed_bytes());
    std::memcpy(fixed.data(), known.data(), sizeof(known));
    return fixed;
  }

  std::vector<Sequence> sequences_;
  std::vector<uint16_t> routed_;  // (layers, rows, k) of the last window
  StateLayout layout_{{{"hash.0", 2 * sizeof(uint64_t), 0, 0}, {"tokens.0", 1 << 20, 1, sizeof(int32_t)}}};
  std::vector<std::vector<std::byte>> slots_{3, std::vector<std::byte>(layout_.fixed_bytes())};
  shm::Segment arena_;
  shm::UsageBoard usage_;
  DispatchCounters counters_;
  std::unique_ptr<ResidentTable> residents_;
};

// Keeps what it hears; any thread may look.
class RecordingListener final : public GenerationListener {
 private:
  template <class Read>
  auto with_lock(Read read) const {
    std::lock_guard lock(mutex_);
    return read();
  }
  template <class Predicate>
  bool wait(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), predicate);
  }

 public:
  void on_event(GenerationEvent event) override {
    std::lock_guard lock(mutex_);
    if (auto* chosen = std::get_if<TokenChosen>(&event)) {
      tokens_.push_back(chosen->token.id);
      indexes_.push_back(chosen->index);
    }
    over_ = std::holds_alternative<GenerationEnded>(event) || std::holds_alternative<Status>(event);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  // Bounded waits: false when it does not come about in ten seconds.
  bool wait_over() {
    return wait([this] { return over_; });
  }
  bool wait_tokens(std::size_t count) {
    return wait([this, count] { return tokens_.size() >= count; });
  }

  bool over() const {
    return with_lock([this] { return over_; });
  }
  std::vector<int32_t> tokens() const {
    return with_lock([this] { return tokens_; });
  }
  std::vector<uint32_t> indexes() const {
    return with_lock([this] { return indexes_; });
  }
  std::vector<GenerationEvent> events() const {
    return with_lock([this] { return events_; });
  }
  GenerationEnded ended() const {
    return with_lock([this] { return std::get<GenerationEnded>(events_.back()); });
  }
  Status status() const {
    return with_lock([this] { return std::get<Status>(events_.back()); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GenerationEvent> events_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> indexes_;
  bool over_ = false;
};

}  // namespace strata::gpu_worker
