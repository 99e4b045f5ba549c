// The demo model in one process: window loop, host device and dispatch together, without expert workers
// (misses are computed here), so that what is judged is the engine's own share of the numbers contract.

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <future>

#include "gpu-worker/constraint_maker.h"
#include "gpu-worker/fake_device.h"
#include "gpu-worker/host/host_device.h"
#include "gpu-worker/state_names.h"
#include "gpu-worker/window_loop.h"
#include "services/gguf/gguf_file.h"
#include "services/grammar/json_schema.h"
#include "services/grammar/schema_checker.h"
#include "services/sys/cpus.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker {
namespace {

using Tokens = std::vector<int32_t>;

template <class T>
T must(Result<T> result) {
  CHECK(result.has_value(), "{}", result.error().message());
  return std::move(*result);
}

gguf::GgufFile demo_file() { return must(gguf::GgufFile::open(tests::models_golden_model().string())); }

const model::ModelWeights& demo_weights() {
  static const model::ModelWeights weights = must(model::load_model(demo_file()));
  return weights;
}
const tokenizer::Tokenizer& demo_tokenizer() {
  static const tokenizer::Tokenizer tokenizer = must(tokenizer::Tokenizer::from_gguf(demo_file()));
  return tokenizer;
}

// Some text-like tokens: what they mean does not matter here.
Tokens prompt_of(uint32_t count, uint32_t seed) {
  Tokens prompt;
  uint32_t value = seed;
  for (uint32_t i = 0; i < count; ++i) {
    value = value * 1664525 + 1013904223;
    prompt.push_back(static_cast<int32_t>((value >> 8) % demo_weights().config.vocab));
  }
  return prompt;
}

// One engine with its own arena.
class Engine {
 public:
  explicit Engine(const std::string& slots, uint32_t threads = 1) {
    config::Settings settings;
    settings.engine_sequences.set(3);
    settings.engine_context_tokens.set(256);
    settings.engine_prefill_chunk_tokens.set(16);
    settings.cpu_experts_workers.set(0);
    CHECK(settings.find("experts.slots")->parse(slots).ok());
    const model::ModelWeights& weights = demo_weights();
    auto plan = make_host_plan(weights, settings, 256, sys::available_memory_bytes());
    CHECK(plan.has_value(), "{}", plan.error().message());
    workers_ = std::make_unique<ExpertWorkers>(ExpertWorkersOptions{
        .run_id = "unittest", .geometry = plan->board, .expected = 0, .keep_awake = true});
    auto device = HostDevice::create({.weights = &weights,
                                      .plan = *plan,
                                      .numerics = quant::Numerics::kReproducible,
                                      .threads = threads,
                                      .run_id = "unittest",
                                      .workers = workers_.get()});
    CHECK(device.has_value(), "{}", device.error().message());
    device_ = std::move(*device);
    loop_ = std::make_unique<WindowLoop>(WindowLoopOptions{
        .device = device_.get(), .context_tokens = 256, .prefill_chunk_tokens = plan->prefill_chunk_tokens});
  }

  HostDevice& device() { return *device_; }
  ExpertWorkers& workers() { return *workers_; }
  WindowLoop& loop() { return *loop_; }

  // Makes the first `count` slots resident, spread over the layers, before anything runs.
  void fill(uint32_t count) {
    const auto& layers = demo_weights().layers;
    shm::Segment arena = attach_arena();
    ResidentTable& residents = device_->residents();
    uint64_t epoch = residents.begin_attachment();
    for (uint32_t slot = 0; slot < count; ++slot) {
      auto layer = static_cast<uint32_t>(slot % layers.size());
      exchange(arena, epoch, slot, layer, static_cast<uint32_t>(slot / layers.size()));
    }
  }
  // Puts another expert of the layer into each of the first slots: not one stays where it was.
  void exchange_all(uint32_t count) {
    const auto& layers = demo_weights().layers;
    shm::Segment arena = attach_arena();
    uint64_t epoch = device_->residents().begin_attachment();
    for (uint32_t slot = 0; slot < count; ++slot) {
      auto layer = static_cast<uint32_t>(slot % layers.size());
      const model::LayerExperts& experts = layers[layer].moe.experts;
      exchange(arena, epoch, slot, layer, experts.count - 1 - static_cast<uint32_t>(slot / layers.size()));
    }
  }

  std::shared_ptr<RecordingListener> start(const Tokens& prompt, uint32_t max_tokens,
                                           model::SamplingParams sampling = {.temperature = 0},
                                           const Tokens& known = {}) {
    auto heard = std::make_shared<RecordingListener>();
    CHECK(loop_
              ->submit(std::make_shared<Generation>(GenerationRequest{.request_id = "r",
                                                                      .prompt = prompt,
                                                                      .generated = known,
                                                                      .sampling = sampling,
                                                                      .max_tokens = max_tokens,
                                                                      .end_tokens = {}},
                                                    heard))
              .ok());
    return heard;
  }
  std::shared_ptr<RecordingListener> start_constrained(const Tokens& prompt, const ConstraintWish& wish,
                                                       const model::SamplingParams& sampling,
                                                       const Tokens& known = {}) {
    auto heard = std::make_shared<RecordingListener>();
    GenerationRequest request;
    request.prompt = prompt;
    request.generated = known;
    request.sampling = sampling;
    request.max_tokens = 200;
    request.constraint = wish;
    auto generation = std::make_shared<Generation>(std::move(request), heard);
    std::promise<Status> made;
    maker_.constrain(generation, [&](Status status) { made.set_value(std::move(status)); });
    const Status status = made.get_future().get();
    CHECK(status.ok(), "{}", status.message());
    CHECK(loop_->submit(std::move(generation)).ok());
    return heard;
  }
  Tokens answer(const Tokens& prompt, uint32_t max_tokens,
                model::SamplingParams sampling = {.temperature = 0}, const Tokens& known = {}) {
    auto heard = start(prompt, max_tokens, sampling, known);
    EXPECT_TRUE(heard->wait_over());
    return heard->tokens();
  }

 private:
  shm::Segment attach_arena() {
    ArenaHandle handle = device_->arena();
    auto arena = shm::Segment::attach(handle.segment, shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                      handle.bytes, handle.instance_id);
    CHECK(arena.has_value(), "{}", arena.error().message());
    return std::move(*arena);
  }
  // The four steps, through the loop's inbox as the services do it.
  void exchange(const shm::Segment& arena, uint64_t epoch, uint32_t slot, uint32_t layer, uint32_t expert) {
    ResidentTable& residents = device_->residents();
    bool accepted = false;
    ExpertExchange wanted{slot, layer, expert};
    at_boundary([&] { accepted = (*residents.retire(epoch, {&wanted, 1}))[0]; });
    if (!accepted) return;
    demo_weights().layers[layer].moe.experts.write_record(
        expert, shm::arena_slots(arena) + uint64_t{slot} * device_->arena().slot_bytes);
    at_boundary([&] { CHECK(residents.land(epoch, {&slot, 1}).has_value()); });
  }
  void at_boundary(const std::function<void()>& apply) {
    std::mutex mutex;
    std::condition_variable changed;
    bool replied = false;
    CHECK(loop_
              ->at_boundary(apply,
                            [&] {
                              std::lock_guard lock(mutex);
                              replied = true;
                              changed.notify_all();
                            })
              .ok());
    std::unique_lock lock(mutex);
    CHECK(changed.wait_for(lock, std::chrono::seconds(30), [&] { return replied; }));
  }

  ConstraintMaker maker_{{.vocab = demo_weights().config.vocab, .load_vocabulary = [] {
                            return grammar::Vocabulary::from_tokenizer(demo_tokenizer());
                          }}};
  std::unique_ptr<ExpertWorkers> workers_;
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<WindowLoop> loop_;
};

constexpr model::SamplingParams kSeeded{
    .temperature = 1.0f, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = 42};

TEST(HostEngine, AnswersTheSameWithNoneSomeAndAllExpertsResident) {
  Tokens prompt = prompt_of(40, 1);
  Engine none("0");
  Tokens greedy = none.answer(prompt, 24);
  Tokens seeded = none.answer(prompt, 24, kSeeded);
  ASSERT_EQ(greedy.size(), 24u);
  EXPECT_EQ(none.device().dispatch_counters().hits, 0u);
  for (const char* slots : {"25%", "100%"}) {
    Engine engine(slots, 2);
    engine.fill(engine.device().arena().slot_count);
    EXPECT_EQ(engine.answer(prompt, 24), greedy) << slots;
    EXPECT_EQ(engine.answer(prompt, 24, kSeeded), seeded) << slots;
    EXPECT_GT(engine.device().dispatch_counters().hits, 0u) << slots;
  }
}

TEST(HostEngine, AnswersTheSameWhileExpertsAreExchanged) {
  Tokens prompt = prompt_of(20, 2);
  Engine engine("25%");
  Tokens alone = engine.answer(prompt, 60);
  uint32_t count = engine.device().arena().slot_count;
  auto heard = engine.start(prompt, 60);
  engine.fill(count);
  engine.exchange_all(count);
  ASSERT_TRUE(heard->wait_over());
  EXPECT_EQ(heard->tokens(), alone);
  EXPECT_GT(engine.device().residents().slots_used(), 0u);
}

TEST(HostEngine, SeveralAtOnceGetTheAnswersThatEachGetsAlone) {
  Engine engine("0", 2);
  std::vector<Tokens> prompts = {prompt_of(50, 3), prompt_of(1, 4), prompt_of(33, 5)};
  std::vector<Tokens> alone;
  for (const Tokens& prompt : prompts) alone.push_back(engine.answer(prompt, 20, kSeeded));
  std::vector<std::shared_ptr<RecordingListener>> together;
  for (const Tokens& prompt : prompts) together.push_back(engine.start(prompt, 20, kSeeded));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(together[i]->wait_over());
    EXPECT_EQ(together[i]->tokens(), alone[i]) << i;
  }
}

TEST(HostEngine, GoesOnWithTheSameTokensAfterAResubmission) {
  Engine engine("0");
  Tokens prompt = prompt_of(21, 6);
  for (const model::SamplingParams& sampling : {model::SamplingParams{.temperature = 0}, kSeeded}) {
    Tokens whole = engine.answer(prompt, 24, sampling);
    for (std::ptrdiff_t known : {1, 10, 23}) {
      Tokens rest = engine.answer(prompt, 24, sampling, Tokens(whole.begin(), whole.begin() + known));
      EXPECT_EQ(rest, Tokens(whole.begin() + known, whole.end())) << "after " << known;
    }
  }
}

TEST(HostEngine, AReusedSequenceRemembersNothing) {
  Engine engine("0");
  Tokens first = engine.answer(prompt_of(30, 7), 10);
  engine.answer(prompt_of(100, 8), 30);
  EXPECT_EQ(engine.answer(prompt_of(30, 7), 10), first);
}

TEST(HostEngine, AWindowThatFailsLetsTheWorkersSleep) {
  Engine engine("0");
  auto worker = engine.workers().attach("cpu-expert-worker-0", static_cast<uint32_t>(getpid()), {});
  ASSERT_TRUE(worker) << worker.error().message();
  auto sequence = engine.device().open_sequence();
  ASSERT_TRUE(sequence);
  const DeviceRow row{.sequence = *sequence, .token = -1, .is_prompt = true, .sample = {}};
  std::vector<RowChoice> choices;
  EXPECT_FALSE(engine.device().run_window({&row, 1}, choices).ok());
  ASSERT_EQ(engine.workers().in_window().size(), 1U) << "the window had begun";
  EXPECT_EQ((*worker)->board.header().window_open, 0U);
}

// Of two sequences, and where a window ends as well.
TEST(HostEngine, CapturesWithinAWindowWhatAWindowThatEndsThereLeaves) {
  Engine engine("0", 2);
  HostDevice& device = engine.device();
  ASSERT_GE(device.checkpoint_slots(), 3u);
  const Tokens tokens = prompt_of(16, 31);
  const auto slot = [&](uint32_t index) {
    std::vector<std::byte> bytes(device.state_layout().fixed_bytes());
    EXPECT_TRUE(device.read_slot(index, bytes).ok());
    // What a tail of raw keys does not count is left from before (services/model/forward_test.cc compares
    // that, too).
    for (const StateLayout::Part& part : device.state_layout().fixed_parts()) {
      if (part.name.starts_with(state_name::kBlockTail))
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(part.offset), part.bytes, std::byte{0});
    }
    return bytes;
  };
  std::vector<RowChoice> choices;
  const auto row = [&](SequenceId id, uint32_t at, std::optional<uint32_t> capture = {}) {
    return DeviceRow{
        .sequence = id, .token = tokens[at], .is_prompt = true, .sample = {}, .capture = capture};
  };
  const SequenceId one = must(device.open_sequence()), other = must(device.open_sequence());
  std::vector<DeviceRow> rows;
  for (uint32_t at = 0; at < 7; ++at)
    rows.push_back(row(other, at, at == 6 ? std::optional(2u) : std::nullopt));
  for (uint32_t at = 0; at < 9; ++at)
    rows.push_back(row(one, at, at == 4 ? std::optional(0u) : std::nullopt));
  ASSERT_TRUE(device.run_window(rows, choices).ok());
  const auto within = slot(0), at_end = slot(2);
  device.close_sequence(other);
  device.capture(one, 1);
  const auto behind = slot(1);

  for (const auto& [count, expected] : {std::pair(5u, &within), {7u, &at_end}, {9u, &behind}}) {
    const SequenceId alone = must(device.open_sequence());
    rows.clear();
    for (uint32_t at = 0; at < count; ++at) rows.push_back(row(alone, at));
    ASSERT_TRUE(device.run_window(rows, choices).ok());
    device.capture(alone, 1);
    EXPECT_TRUE(slot(1) == *expected) << count;
    device.close_sequence(alone);
  }
}

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> kSchemas = {
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
          "minimum": 0, "maximum": 120}}, "required": ["name", "age"]})",
      R"({"type": "array", "items": {"enum": ["red", "green", 3, null]}, "minItems": 2, "maxItems": 5})",
      R"({"type": "object", "properties": {"when": {"type": "string", "format": "date"}, "ok": {"type": "boolean"},
          "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}}, "required": ["ok", "code"]})",
      R"({"anyOf": [{"type": "number"}, {"type": "object", "properties": {"x": {"const": "y"}}, "required": ["x"]}]})",
      R"({"type": "object", "properties": {"inner": {"type": "object", "properties": {"list": {"type": "array",
          "maxItems": 3, "items": {"type": "integer", "minimum": -9, "maximum": 9}}}, "required": ["list"]}},
          "required": ["inner"]})"};
  return kSchemas;
}
std::string gbnf_of(const std::string& schema) {
  return must(must(grammar::rules_of_schema(schema)).to_gbnf());
}

TEST(HostEngine, AnswersAreValidJsonOfTheirSchema) {
  Engine engine("0");
  for (const std::string& schema : schemas()) {
    const boost::json::value parsed_schema = boost::json::parse(schema);
    const std::string gbnf = gbnf_of(schema);
    std::set<std::string> texts;
    for (uint64_t seed = 0; seed < 9; seed += 3) {
      std::vector<std::shared_ptr<RecordingListener>> heard;
      for (uint64_t i = 0; i < 3; ++i) {
        const model::SamplingParams sampling{
            .temperature = 1.0f, .top_k = i == 0 ? 40u : 0u, .seed = seed + i};
        heard.push_back(engine.start_constrained(prompt_of(10, static_cast<uint32_t>(seed + i)),
                                                 {.gbnf = gbnf}, sampling));
      }
      for (const auto& each : heard) {
        ASSERT_TRUE(each->wait_over());
        const std::string text = demo_tokenizer().decode(each->tokens());
        ASSERT_TRUE(std::holds_alternative<GenerationEnded>(each->events().back()))
            << each->status().message();
        EXPECT_EQ(each->ended().reason, EndReason::kEndToken) << text;
        boost::json::error_code error;
        const boost::json::value value = boost::json::parse(text, error);
        ASSERT_FALSE(error) << text;
        EXPECT_TRUE(grammar::SchemaChecker(parsed_schema).accepts(value)) << text << " for " << schema;
        texts.insert(text);
      }
    }
    EXPECT_GT(texts.size(), 1u) << "seeds make no difference?";
  }
}

TEST(HostEngine, AConstrainedAnswerGoesOnAlikeAndDisturbsNobody) {
  Engine engine("0");
  const Tokens others_prompt = prompt_of(12, 21), prompt = prompt_of(9, 22);
  const Tokens alone = engine.answer(others_prompt, 40, kSeeded);
  const int32_t thinking_end = prompt_of(1, 23)[0];
  const ConstraintWish wish{
      .gbnf = gbnf_of(schemas()[0]), .thinking_end = thinking_end, .thinking_tokens_max = 7};
  auto other = engine.start(others_prompt, 40, kSeeded);
  auto constrained = engine.start_constrained(prompt, wish, kSeeded);
  ASSERT_TRUE(other->wait_over() && constrained->wait_over());
  EXPECT_EQ(other->tokens(), alone);
  const Tokens whole = constrained->tokens();
  EXPECT_EQ(constrained->ended().reason, EndReason::kEndToken);
  const auto thought = std::ranges::find(whole, thinking_end);
  ASSERT_LE(thought - whole.begin(), 7);
  const Tokens said(thought + 1, whole.end());
  EXPECT_TRUE(boost::json::parse(demo_tokenizer().decode(said)).is_object());
  for (const std::ptrdiff_t known :
       {std::ptrdiff_t{1}, std::ptrdiff_t{7}, std::ptrdiff_t{8}, std::ptrdiff_t{12}}) {
    ASSERT_LT(static_cast<std::size_t>(known), whole.size());
    auto again =
        engine.start_constrained(prompt, wish, kSeeded, Tokens(whole.begin(), whole.begin() + known));
    ASSERT_TRUE(again->wait_over());
    EXPECT_EQ(again->tokens(), Tokens(whole.begin() + known, whole.end())) << known;
  }
}

TEST(HostEngine, TellsWhereItsTimeGoes) {
  Engine engine("0");
  engine.answer(prompt_of(8, 9), 8);
  const LoopCounters& counters = engine.loop().counters();
  EXPECT_EQ(counters.decode_windows, 7u);
  uint64_t staged = 0;
  for (const auto& stage : counters.stage_ns) staged += stage;
  EXPECT_GT(staged, counters.decode_ns / 2) << "most of a window is in some stage";
  EXPECT_LE(staged, counters.decode_ns + counters.decode_ns / 4);
}

}  // namespace
}  // namespace strata::gpu_worker
