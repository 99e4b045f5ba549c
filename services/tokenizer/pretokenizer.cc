#include "services/tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "services/base/check.h"

namespace strata::tokenizer {
namespace {

struct Pattern {
  std::string_view name;
  const char* regex;
};

// White space is the Unicode property, spelled out: PCRE2's \s also takes U+180E, which left the property in
// Unicode 6.3.
#define WHITE R"(\p{White_Space})"
#define WHITE_RUNS "|" WHITE R"(*[\r\n]+|)" WHITE R"(+(?!\P{White_Space})|)" WHITE "+"
constexpr std::array kPatterns = {
    Pattern{"qwen35",
            R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\p{L}\p{M}\p{N})" WHITE
            R"(]+[\r\n]*)" WHITE_RUNS},
    Pattern{"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\p{L}\p{N})" WHITE
                     R"(]+[\r\n]*)" WHITE_RUNS},
};
#undef WHITE_RUNS
#undef WHITE

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;

}  // namespace

struct Pretokenizer::Impl {
  Code code;
  MatchContext limits;
};

Result<Pretokenizer> Pretokenizer::create(std::string_view name, Engine engine) {
  const Pattern* pattern = nullptr;
  for (const Pattern& candidate : kPatterns) {
    if (candidate.name == name) pattern = &candidate;
  }
  if (pattern == nullptr) {
    return fail(strata::Code::kInvalidArgument, "unknown pre-tokenizer \"{}\" (known: qwen35, qwen2)", name);
  }
  auto impl = std::make_shared<Impl>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->regex), PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  CHECK(impl->code != nullptr, "pattern {}: PCRE2 error {} at {}", name, error, offset);
  // Refused where the system forbids writable executable memory; pcre2_match then interprets the pattern.
  if (engine == Engine::kJit) (void)pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  impl->limits.reset(pcre2_match_context_create(nullptr));
  CHECK(impl->limits != nullptr);
  // The pattern backs up over a run of white space at most once, so its work is linear; the default limit
  // would only refuse long runs.
  pcre2_set_match_limit(impl->limits.get(), UINT32_MAX);
  return Pretokenizer(std::move(impl));
}

void Pretokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  CHECK(match != nullptr);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    const int rc = pcre2_match(impl_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(),
                               impl_->limits.get());
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
    // Every character is matched by one of the alternatives.
    CHECK(rc == 1 && found[0] == at && found[1] > at, "PCRE2 result {} at byte {}", rc, at);
    at = found[1];
    ends.push_back(at);
  }
}

}  // namespace strata::tokenizer
