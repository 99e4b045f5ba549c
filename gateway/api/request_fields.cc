#include "gateway/api/request_fields.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <charconv>
#include <limits>

#include "gateway/api/json_text.h"
#include "services/base/limits.h"

namespace strata::gateway {

namespace {

constexpr double kBiasMax = 100;
constexpr std::size_t kBiasEntriesMax = 4096;
constexpr std::size_t kStopBytesMax = 1024;

// What is above zero stays so: where zero is out of range, the smallest number is not.
std::optional<float> narrow(std::optional<double> value) {
  if (!value) return {};
  const auto narrowed = static_cast<float>(*value);
  if (narrowed == 0 && *value > 0) return std::numeric_limits<float>::min();
  return narrowed;
}

std::optional<uint64_t> read_seed(FieldReader& fields) {
  const boost::json::value* value = fields.find("seed");
  if (value == nullptr) return {};
  if (value->is_uint64()) return value->get_uint64();
  auto number = whole_number(*value);
  if (!number) {
    fields.fail("seed",
                fmt::format("seed must be a whole number of at most 64 bits, got {}", describe(*value)));
    return {};
  }
  if (*number == -1) return {};  // the usual way to ask for a random one
  return static_cast<uint64_t>(*number);
}

std::vector<std::pair<int32_t, float>> read_logit_bias(FieldReader& fields, uint32_t vocab) {
  const boost::json::object* object = fields.object("logit_bias");
  if (object == nullptr) return {};
  if (object->size() > kBiasEntriesMax) {
    fields.fail("logit_bias", fmt::format("logit_bias may hold at most {} tokens, got {}", kBiasEntriesMax,
                                          object->size()));
    return {};
  }
  std::vector<std::pair<int32_t, float>> biases;
  FieldReader values(*object, "logit_bias.");
  for (const auto& member : *object) {
    const std::string_view key = member.key();
    uint32_t token = 0;
    auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || token >= vocab) {
      fields.fail("logit_bias", fmt::format("logit_bias: {} is no token id below {}", snippet(key), vocab));
      return {};
    }
    auto bias = values.number(key, {.min = -kBiasMax, .max = kBiasMax});
    if (values.failed()) {
      fields.fail(values.error().value());
      return {};
    }
    biases.emplace_back(static_cast<int32_t>(token), static_cast<float>(bias.value_or(0)));
  }
  return biases;
}

// -1 means "what the context leaves", as null does.
std::optional<uint32_t> read_cap(FieldReader& fields, std::string_view name) {
  auto cap = fields.integer(name, -1, std::numeric_limits<int32_t>::max());
  if (!cap || *cap == -1) return {};
  if (*cap == 0) {
    fields.fail(name, fmt::format("{} must be at least 1, got 0", name));
    return {};
  }
  return static_cast<uint32_t>(*cap);
}

}  // namespace

std::vector<std::string> read_stop_strings(FieldReader& fields, std::string_view name, uint32_t count_max) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.emplace_back(value->get_string());
  } else if (value->is_array()) {
    for (const auto& element : value->get_array()) {
      if (!element.is_string()) {
        fields.fail(name, fmt::format("{} must be a string or an array of strings, got {} in it", name,
                                      describe(element)));
        return {};
      }
      stops.emplace_back(element.get_string());
    }
  } else {
    fields.fail(name,
                fmt::format("{} must be a string or an array of strings, got {}", name, describe(*value)));
    return {};
  }
  if (stops.size() > count_max) {
    fields.fail(name, fmt::format("{} may hold at most {} strings, got {}", name, count_max, stops.size()));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) fields.fail(name, "a stop string must not be empty");
    if (stop.size() > kStopBytesMax) {
      fields.fail(name,
                  fmt::format("a stop string may have at most {} bytes, got {}", kStopBytesMax, stop.size()));
    }
  }
  return stops;
}

ScheduleFields read_schedule_fields(FieldReader& fields) {
  ScheduleFields schedule;
  schedule.priority =
      static_cast<int32_t>(fields.integer("priority", -kPriorityMax, kPriorityMax).value_or(0));
  if (auto timeout = fields.integer("timeout_ms", 1, kTimeoutMsMax))
    schedule.timeout = std::chrono::milliseconds(*timeout);
  return schedule;
}

ApiResult<std::optional<std::chrono::milliseconds>> read_timeout_header(const std::string* text) {
  if (text == nullptr) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 1 || value > kTimeoutMsMax) {
    return tl::unexpected(
        invalid_request(fmt::format("the header X-Timeout-Ms must be a whole number from 1 to {}, got {}",
                                    kTimeoutMsMax, snippet(*text))));
  }
  return std::chrono::milliseconds(value);
}

SamplingFields read_sampling_fields(FieldReader& fields, uint32_t vocab) {
  SamplingFields sampling;
  sampling.temperature = narrow(fields.number("temperature", {.min = 0, .max = 2}));
  sampling.top_p = narrow(fields.number("top_p", {.min = 0, .max = 1, .above_min = true}));
  sampling.min_p = narrow(fields.number("min_p", {.min = 0, .max = 1}));
  if (auto top_k = fields.integer("top_k", -1, std::numeric_limits<int32_t>::max())) {
    sampling.top_k = *top_k < 0 ? 0 : static_cast<uint32_t>(*top_k);  // -1 is off, too, in several servers
  }
  const char* repetition =
      fields.find("repetition_penalty") != nullptr ? "repetition_penalty" : "repeat_penalty";
  sampling.repetition_penalty = narrow(fields.number(repetition, {.min = 0, .max = 10, .above_min = true}));
  sampling.presence_penalty = narrow(fields.number("presence_penalty", {.min = -2, .max = 2}));
  sampling.frequency_penalty = narrow(fields.number("frequency_penalty", {.min = -2, .max = 2}));
  if (auto last = fields.integer("repeat_last_n", 0, std::numeric_limits<int32_t>::max())) {
    sampling.penalty_last_n = static_cast<uint32_t>(*last);
  }
  sampling.seed = read_seed(fields);
  sampling.logit_bias = read_logit_bias(fields, vocab);
  return sampling;
}

CommonFields read_common_fields(FieldReader& fields, uint32_t vocab) {
  CommonFields common;
  common.model = fields.string("model").value_or("");
  common.stream = fields.boolean("stream").value_or(false);
  if (const auto* options = fields.object("stream_options")) {
    FieldReader nested(*options, "stream_options.");
    common.include_usage = nested.boolean("include_usage").value_or(false);
    if (nested.failed()) fields.fail(nested.error().value());
    if (!common.stream) fields.fail("stream_options", "stream_options is allowed only when stream is true");
  }
  common.return_reuse = fields.boolean("return_reuse").value_or(false);
  common.n = static_cast<uint32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  common.schedule = read_schedule_fields(fields);
  common.sampling = read_sampling_fields(fields, vocab);
  common.stop = read_stop_strings(fields, "stop", kStopStringsMax);
  auto max_completion_tokens = read_cap(fields, "max_completion_tokens");
  auto max_tokens = read_cap(fields, "max_tokens");
  common.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  return common;
}

}  // namespace strata::gateway
