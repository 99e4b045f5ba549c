// What a "format" of strings is generated as: always a text of the format, not always every one.
#include <array>
#include <utility>

#include "services/grammar/schema_compiler.h"

namespace strata::grammar {
namespace {

// Years 1000 to 2999 and 28 days in February: true in every year.
#define STRATA_DATE                                                                                      \
  "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|" \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define STRATA_TIME                                              \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define STRATA_DURATION_TIME \
  "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
#define STRATA_DURATION_DATE \
  "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
#define STRATA_HOST_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?"
#define STRATA_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define STRATA_URI_CHARACTER "(?:[a-zA-Z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})"

constexpr auto kPatterns = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"date", "^" STRATA_DATE "$"},
    {"time", "^" STRATA_TIME "$"},
    {"date-time", "^" STRATA_DATE "T" STRATA_TIME "$"},
    {"duration",
     "^P(?:[0-9]{1,4}W|" STRATA_DURATION_DATE "(?:" STRATA_DURATION_TIME ")?|" STRATA_DURATION_TIME ")$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[a-zA-Z0-9_+-]+(?:\\.[a-zA-Z0-9_+-]+)*@" STRATA_HOST_LABEL "(?:\\." STRATA_HOST_LABEL
              ")*\\.[a-zA-Z]{2,10}$"},
    {"hostname", "^" STRATA_HOST_LABEL "(?:\\." STRATA_HOST_LABEL "){0,4}\\.[a-zA-Z]{2,10}$"},
    {"ipv4", "^" STRATA_BYTE "(?:\\." STRATA_BYTE "){3}$"},
    {"ipv6", "^[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}$"},
    {"uri",
     "^[a-zA-Z][a-zA-Z0-9+.-]*://" STRATA_HOST_LABEL "(?:\\." STRATA_HOST_LABEL ")*(?::[1-9][0-9]{0,3})?"
     "(?:/" STRATA_URI_CHARACTER "*(?:\\?" STRATA_URI_CHARACTER "*)?(?:#" STRATA_URI_CHARACTER "*)?)?$"},
});

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : kPatterns) {
    if (name == format) return pattern;
  }
  return std::nullopt;
}

}  // namespace strata::grammar
