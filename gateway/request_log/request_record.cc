#include "gateway/request_log/request_record.h"

#include <fmt/chrono.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/openai_format.h"

namespace strata::gateway {

namespace {

// Enough to tell the keys of a server apart; far too little to find one by.
constexpr std::size_t kKeyDigits = 8;

std::string_view beginning(std::string_view key_hash) {
  return key_hash.substr(key_hash.find(":") + 1, kKeyDigits);
}

boost::json::value or_null(std::string_view text) {
  return text.empty() ? boost::json::value(nullptr) : boost::json::value(boost::json::string(text));
}

std::string utc(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(ms);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), (ms - seconds).count());
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

boost::json::object content_json(const RequestContent& content) {
  boost::json::array answers;
  for (const std::string& answer : content.answers)
    answers.push_back(boost::json::string(to_valid_utf8(answer)));
  boost::json::object out;
  out["request"] = to_valid_utf8(content.request);
  out["answers"] = std::move(answers);
  return out;
}

}  // namespace

std::string to_line(const RequestRecord& record) {
  boost::json::object out;
  out["time"] = utc(record.ended);
  out["request_id"] = record.request_id;
  out["endpoint"] = endpoint_name(record.endpoint);
  out["key"] = or_null(beginning(record.key_hash));
  out["outcome"] = outcome_name(record.outcome);
  out["status"] = record.status;
  out["took_ms"] = record.took ? boost::json::value(milliseconds(*record.took)) : boost::json::value(nullptr);
  out["usage"] = usage_json(record.usage);
  out["timings"] = timings_json(record.usage);
  out["reuse"] = or_null(record.reuse);
  if (record.content) out["content"] = content_json(*record.content);
  return to_json(out) + "\n";
}

}  // namespace strata::gateway
