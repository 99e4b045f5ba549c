// What looking for landmarks adds to a prompt of 200 messages and about 30,000 tokens, beside what rendering
// it and turning it into tokens cost anyway. With the demo model's template and tokenizer.
//   prompt_landmarks_bench [Google Benchmark's options]   in the repository's root

#include <benchmark/benchmark.h>

#include <string>

#include "gateway/chat_template/chat_template.h"
#include "gateway/conversations/checkpoint_positions.h"
#include "services/base/check.h"
#include "services/gguf/gguf_file.h"

namespace strata::gateway {
namespace {

using tokenizer::MarkedText;

struct Chat {
  Chat() {
    auto file = gguf::GgufFile::open("models/strata-demo.gguf");
    CHECK(file.has_value(), "{}", file.error().message());
    auto loaded = tokenizer::Tokenizer::from_gguf(*file);
    CHECK(loaded.has_value(), "{}", loaded.error().message());
    tokenizer = std::move(*loaded);
    auto parsed = chat_template::ChatTemplate::parse(*file->get_string("tokenizer.chat_template"));
    CHECK(parsed.has_value(), "{}", parsed.error().message());
    chat_template = std::move(*parsed);
    std::string content;
    for (int i = 0; i < 60; ++i) content += "word number " + std::to_string(i * 37) + " of it. ";
    messages.push_back({{"role", "system"}, {"content", content}});
    for (int i = 0; i < 200; ++i) {
      messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                          {"content", content.substr(static_cast<std::size_t>(i), 500)}});
    }
    messages.push_back({{"role", "user"}, {"content", "And now?"}});
    text = render(messages);
    tokens = tokenizer->encode(text);
  }
  MarkedText render(const boost::json::array& list) const {
    chat_template::RenderInput input;
    input.messages = list;
    auto rendered = chat_template->render(input);
    CHECK(rendered.has_value(), "{}", rendered.error().message());
    return std::move(*rendered);
  }

  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<chat_template::ChatTemplate> chat_template;
  boost::json::array messages;
  MarkedText text;
  std::vector<int32_t> tokens;
};

const Chat& chat() {
  static const Chat one;
  return one;
}

void render(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(chat().render(chat().messages));
}

void encode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(chat().tokenizer->encode(chat().text));
  state.counters["tokens"] = static_cast<double>(chat().tokens.size());
}

void landmarks(benchmark::State& state) {
  std::size_t positions = 0;
  for (auto _ : state) {
    const PromptLandmarks found =
        prompt_landmarks(*chat().tokenizer, chat().messages, chat().text, chat().tokens,
                         [](const boost::json::array& other) { return chat().render(other); });
    positions =
        checkpoint_positions(found, static_cast<uint32_t>(chat().tokens.size()), 0, CheckpointOptions{})
            .size();
  }
  state.counters["positions"] = static_cast<double>(positions);
}

BENCHMARK(render)->Unit(benchmark::kMicrosecond);
BENCHMARK(encode)->Unit(benchmark::kMicrosecond);
BENCHMARK(landmarks)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata::gateway

BENCHMARK_MAIN();
