// The methods of strings.

#include <algorithm>

#include "gateway/chat_template/format.h"
#include "gateway/chat_template/methods.h"

namespace strata::chat_template {
namespace {

Value same_kind(const Value& self, MarkedText text) { return Value::string(std::move(text), self.markup); }

Value list_of(Interpreter& run, std::vector<MarkedText> parts, bool markup) {
  std::vector<Value> items;
  for (MarkedText& part : parts) items.push_back(Value::string(std::move(part), markup));
  return run.heap().list(std::move(items));
}

template <Case kForm>
Value in_case(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters none("str method", std::move(arguments), {});
  return same_kind(self, change_case(run.budget(), self.text(), kForm));
}

template <Side kSide>
Value stripped(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("strip", std::move(arguments), {"chars"});
  const auto chars = parameters.optional_text(0);
  const auto set = chars ? std::optional<std::string_view>(chars->text()) : std::nullopt;
  return same_kind(self, strip(run.budget(), self.text(), kSide, set));
}

template <bool kFromRight>
Value split_method(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("split", std::move(arguments), {"sep", "maxsplit"});
  const auto separator = parameters.optional_text(0);
  const long max_cuts = parameters.integer_or(1, -1);
  Budget& budget = run.budget();
  if (!separator) {
    return list_of(run,
                   kFromRight ? split_at_space_from_right(budget, self.text(), max_cuts)
                              : split_at_space(budget, self.text(), max_cuts),
                   self.markup);
  }
  if (separator->empty()) raise("empty separator");
  return list_of(run,
                 kFromRight ? split_from_right(budget, self.text(), separator->text(), max_cuts)
                            : split(budget, self.text(), separator->text(), max_cuts),
                 self.markup);
}

Value splitlines(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("splitlines", std::move(arguments), {"keepends"});
  return list_of(run, split_lines(run.budget(), self.text(), parameters.flag_or(0, false)), self.markup);
}

template <bool kFromRight>
Value partition(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("partition", std::move(arguments), {"sep"}, 1);
  const MarkedText& separator = parameters.text(0);
  if (separator.empty()) raise("empty separator");
  const MarkedText& text = self.text();
  const std::size_t found = kFromRight ? find_last_in(run.budget(), text.text(), separator.text())
                                       : find_in(run.budget(), text.text(), separator.text());
  std::vector<MarkedText> parts(3);
  if (found == std::string_view::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    const std::size_t behind = found + separator.size();
    parts = {text.slice(0, found), text.slice(found, behind), text.slice(behind, text.size())};
  }
  run.budget().copy(text.size());
  std::vector<Value> items;
  for (MarkedText& part : parts) items.push_back(same_kind(self, std::move(part)));
  return run.heap().tuple(std::move(items));
}

// The part of a text that start and end arguments (at i and i + 1) leave; in bytes.
struct Window {
  std::size_t begin;
  std::size_t end;
  bool valid;  // false: it begins behind the end, where not even the empty string is found
};

Window window_of(const CharacterIndex& characters, const Parameters& parameters, std::size_t i) {
  const auto count = static_cast<long>(characters.count());
  const auto bound = [&](std::size_t which, long fallback) {
    long at = parameters.has(which) && parameters.value(which).is_none()
                  ? fallback
                  : parameters.integer_or(which, fallback);
    if (at < 0) at = std::max<long>(0, at + count);
    return at;
  };
  const long begin = bound(i, 0);
  const long end = std::min(bound(i + 1, count), count);
  if (begin > end) return {0, 0, false};
  return {characters.begin(static_cast<std::size_t>(begin)), characters.begin(static_cast<std::size_t>(end)),
          true};
}

// Whether a text begins or ends with an affix, or with one of a tuple of them.
template <bool kAtEnd>
Value has_affix(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters(kAtEnd ? "endswith" : "startswith", std::move(arguments),
                              {"affix", "start", "end"}, 1);
  std::string_view text = self.view();
  if (parameters.has(1)) {
    run.budget().walk(text.size());
    const Window window = window_of(CharacterIndex(text), parameters, 1);
    if (!window.valid) return Value::boolean(false);
    text = text.substr(window.begin, window.end - window.begin);
  }
  const Value& wanted = parameters.value(0);
  const auto* tuple = wanted.as<Sequence>();
  const std::vector<Value> affixes =
      tuple != nullptr && tuple->kind == Sequence::Kind::kTuple ? tuple->items : std::vector<Value>{wanted};
  for (const Value& affix : affixes) {
    if (!affix.is_string())
      raise("startswith/endswith need a str or a tuple of str, not {}", type_name(affix));
    run.budget().copy(affix.view().size());
    if (kAtEnd ? text.ends_with(affix.view()) : text.starts_with(affix.view())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

// The character position of a part, or -1.
template <bool kFromRight>
Int position_of(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("find", std::move(arguments), {"sub", "start", "end"}, 1);
  run.budget().walk(self.view().size());
  const CharacterIndex characters(self.view());
  const Window window = window_of(characters, parameters, 1);
  if (!window.valid) return -1;
  const std::string_view text = self.view().substr(0, window.end);
  const std::string_view wanted = parameters.text(0).text();
  std::size_t found = 0;
  if (kFromRight) {
    found = find_last_in(run.budget(), text.substr(window.begin), wanted);
    if (found != std::string_view::npos) found += window.begin;
  } else {
    found = find_in(run.budget(), text, wanted, window.begin);
  }
  return found == std::string_view::npos ? -1 : static_cast<Int>(characters.character_at(found));
}

template <bool kFromRight>
Value find(Interpreter& run, const Value& self, Arguments arguments) {
  return Value::integer(position_of<kFromRight>(run, self, std::move(arguments)));
}

template <bool kFromRight>
Value index(Interpreter& run, const Value& self, Arguments arguments) {
  const Int found = position_of<kFromRight>(run, self, std::move(arguments));
  if (found < 0) raise("substring not found");
  return Value::integer(found);
}

Value count(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("count", std::move(arguments), {"sub", "start", "end"}, 1);
  run.budget().walk(self.view().size());
  const Window window = window_of(CharacterIndex(self.view()), parameters, 1);
  if (!window.valid) return Value::integer(0);
  const std::string_view text = self.view().substr(window.begin, window.end - window.begin);
  return Value::integer(static_cast<Int>(count_in(run.budget(), text, parameters.text(0).text())));
}

Value replace_method(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return same_kind(self, replace(run.budget(), self.text(), parameters.text(0), parameters.text(1),
                                 parameters.integer_or(2, -1)));
}

Value join(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("join", std::move(arguments), {"iterable"}, 1);
  TextBuilder out(run.budget());
  std::size_t i = 0;
  for (const Value& part : run.elements(parameters.value(0))) {
    if (!part.is_string()) raise("sequence item {}: expected str instance, {} found", i, type_name(part));
    if (i++ > 0) out.append(self.text());
    out.append(part.text());
  }
  return same_kind(self, out.take());
}

Value format(Interpreter& run, const Value& self, Arguments arguments) {
  return same_kind(self, format_braces(run, self.text(), arguments));
}

template <bool kAtEnd>
Value remove_affix(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters parameters(kAtEnd ? "removesuffix" : "removeprefix", std::move(arguments), {"affix"}, 1);
  const MarkedText& text = self.text();
  const std::string& affix = parameters.text(0).text();
  if (kAtEnd && text.text().ends_with(affix))
    return same_kind(self, text.slice(0, text.size() - affix.size()));
  if (!kAtEnd && text.text().starts_with(affix))
    return same_kind(self, text.slice(affix.size(), text.size()));
  return self;
}

enum class Justify : unsigned char { kLeft, kRight, kCenter };

template <Justify kHow>
Value justified(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("ljust/rjust/center", std::move(arguments), {"width", "fillchar"}, 1);
  const MarkedText fill = parameters.text_or(1, " ");
  if (character_count(fill.text()) != 1) raise("the fill character must be exactly one character long");
  const auto length = static_cast<long>(run.length(self));
  const long width = parameters.integer_or(0, 0);
  if (width <= length) return self;
  run.budget().check_text_size(static_cast<uint64_t>(width));
  const long missing = width - length;
  long left = 0;
  if (kHow == Justify::kRight) left = missing;
  if (kHow == Justify::kCenter)
    left = missing / 2 + (missing & width & 1);  // an odd rest goes as Python puts it
  return same_kind(self, pad(run.budget(), self.text(), static_cast<std::size_t>(left),
                             static_cast<std::size_t>(missing - left), fill));
}

Value zfill(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("zfill", std::move(arguments), {"width"}, 1);
  const auto length = static_cast<long>(run.length(self));
  const long width = parameters.integer_or(0, 0);
  if (width <= length) return self;
  run.budget().check_text_size(static_cast<uint64_t>(width));
  const MarkedText& text = self.text();
  const std::size_t sign = text.text().starts_with('-') || text.text().starts_with('+') ? 1 : 0;
  TextBuilder out(run.budget());
  out.append(text, 0, sign);
  out.append(
      repeat(run.budget(), MarkedText("0", Origin::kTemplate), static_cast<std::size_t>(width - length)));
  out.append(text, sign, text.size());
  return same_kind(self, out.take());
}

template <bool (*kSatisfies)(char32_t)>
Value consists_of(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters none("str method", std::move(arguments), {});
  run.budget().walk(self.view().size());
  return Value::boolean(every_character(self.view(), kSatisfies));
}

bool is_letter_or_number(char32_t character) { return is_letter(character) || is_numeric(character); }

template <Case kForm>
Value is_case(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters none("str method", std::move(arguments), {});
  run.budget().walk(self.view().size());
  return Value::boolean(is_in_case(self.view(), kForm));
}

}  // namespace

const MethodTable& text_methods() {
  static const MethodTable table = {
      {"upper", in_case<Case::kUpper>},
      {"lower", in_case<Case::kLower>},
      {"casefold", in_case<Case::kLower>},
      {"title", in_case<Case::kTitle>},
      {"capitalize", in_case<Case::kCapitalized>},
      {"swapcase", in_case<Case::kSwapped>},
      {"strip", stripped<Side::kBoth>},
      {"lstrip", stripped<Side::kLeft>},
      {"rstrip", stripped<Side::kRight>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"startswith", has_affix<false>},
      {"endswith", has_affix<true>},
      {"find", find<false>},
      {"rfind", find<true>},
      {"index", index<false>},
      {"rindex", index<true>},
      {"count", count},
      {"replace", replace_method},
      {"join", join},
      {"format", format},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"ljust", justified<Justify::kLeft>},
      {"rjust", justified<Justify::kRight>},
      {"center", justified<Justify::kCenter>},
      {"zfill", zfill},
      {"isalpha", consists_of<is_letter>},
      {"isdigit", consists_of<is_decimal_digit>},
      {"isdecimal", consists_of<is_decimal_digit>},
      {"isnumeric", consists_of<is_numeric>},
      {"isalnum", consists_of<is_letter_or_number>},
      {"isspace", consists_of<is_space>},
      {"isupper", is_case<Case::kUpper>},
      {"islower", is_case<Case::kLower>},
  };
  return table;
}

}  // namespace strata::chat_template
