#include "services/tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "services/base/check.h"
#include "services/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

// The longest canonical decomposition of one character is 4 code points.
constexpr std::size_t kDecompositionMax = 8;

std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  utf8proc_int32_t parts[kDecompositionMax];
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    CHECK(step.kind == Utf8Step::Kind::kCharacter, "ill-formed UTF-8 at byte {}", at);
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.value), parts,
                                               kDecompositionMax, options, nullptr);
    CHECK(count >= 0 && static_cast<std::size_t>(count) <= kDecompositionMax, "U+{:04X}: {}",
          static_cast<uint32_t>(step.value), count);
    points.insert(points.end(), parts, parts + count);
    at += step.bytes;
  }
  return points;
}

// Puts each run of combining marks into ascending combining class; marks of one class keep their order.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto class_of = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (auto run = points.begin(); run != points.end();) {
    if (class_of(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, points.end(), [&](auto point) { return class_of(point) == 0; });
    std::stable_sort(run, end, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    run = end;
  }
}

}  // namespace

bool is_plainly_nfc(std::string_view text) {
  // Every character below U+0300 is its own NFC and none of them combines with what stands before it. 0xCC
  // leads U+0300.
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

std::string to_nfc(std::string_view text) {
  if (is_plainly_nfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> points = decompose(text);
  order_marks(points);
  const auto count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(count >= 0, "{}", utf8proc_errmsg(count));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8_append(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  }
  return out;
}

}  // namespace strata::tokenizer
