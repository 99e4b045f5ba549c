#include "gateway/chat_template/text.h"

#include <algorithm>
#include <cstring>

#include "gateway/chat_template/characters.h"

namespace strata::chat_template {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

Character character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && continues(text[begin]) && end - begin < 4) --begin;
  const Character whole = character_from(text, begin);
  return whole.end == end ? whole : Character{end - 1, end, 0xFFFD};
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<MarkedText> reversed(std::vector<MarkedText> parts) {
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// One part of a split: pays for it.
void add_part(Budget& budget, std::vector<MarkedText>& parts, const MarkedText& text, std::size_t begin,
              std::size_t end) {
  budget.step(kStepsPerObject);
  budget.copy(end - begin);
  parts.push_back(text.slice(begin, end));
}

}  // namespace

void TextBuilder::append(std::string_view text, Origin origin) {
  budget_.copy(text.size());
  budget_.check_text_size(text_.size() + text.size());
  text_.append(text, origin);
}

void TextBuilder::append(const MarkedText& text, std::size_t begin, std::size_t end) {
  budget_.copy(end - begin);
  budget_.check_text_size(text_.size() + (end - begin));
  text_.append(text, begin, end);
}

CharacterIndex::CharacterIndex(std::string_view text) : bytes_(text.size()) {
  ascii_ =
      std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  if (ascii_) return;
  for_each_character(text, [&](const Character& c) { begins_.push_back(c.begin); });
  begins_.push_back(text.size());
}

std::size_t CharacterIndex::character_at(std::size_t byte) const {
  if (ascii_) return byte;
  return static_cast<std::size_t>(std::lower_bound(begins_.begin(), begins_.end(), byte) - begins_.begin());
}

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for_each_character(text, [&](const Character&) { ++count; });
  return count;
}

std::vector<MarkedText> characters(Budget& budget, const MarkedText& text) {
  std::vector<MarkedText> out;
  for_each_character(text.text(), [&](const Character& c) { add_part(budget, out, text, c.begin, c.end); });
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

MarkedText strip(Budget& budget, const MarkedText& text, Side side, std::optional<std::string_view> wanted) {
  std::vector<char32_t> set;
  if (wanted) for_each_character(*wanted, [&](const Character& c) { set.push_back(c.value); });
  const auto goes = [&](char32_t c) {
    return wanted ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  const std::string_view whole = text.text();
  std::size_t begin = 0;
  std::size_t end = whole.size();
  const auto pay = [&] { budget.step(1 + set.size() / kBytesWalkedPerStep); };
  while (side != Side::kRight && begin < end) {
    const Character c = character_from(whole, begin);
    pay();
    if (!goes(c.value)) break;
    begin = c.end;
  }
  while (side != Side::kLeft && end > begin) {
    const Character c = character_before(whole, end);
    pay();
    if (!goes(c.value)) break;
    end = c.begin;
  }
  budget.copy(end - begin);
  return text.slice(begin, end);
}

std::vector<MarkedText> split(Budget& budget, const MarkedText& text, std::string_view separator,
                              long max_cuts) {
  std::vector<MarkedText> parts;
  std::size_t begin = 0;
  while (max_cuts < 0 || static_cast<long>(parts.size()) < max_cuts) {
    const std::size_t found = find_in(budget, text.text(), separator, begin);
    if (found == std::string_view::npos) break;
    add_part(budget, parts, text, begin, found);
    begin = found + separator.size();
  }
  add_part(budget, parts, text, begin, text.size());
  return parts;
}

std::vector<MarkedText> split_from_right(Budget& budget, const MarkedText& text, std::string_view separator,
                                         long max_cuts) {
  std::vector<MarkedText> parts;
  std::size_t end = text.size();
  while (max_cuts < 0 || static_cast<long>(parts.size()) < max_cuts) {
    const std::size_t found = find_last_in(budget, std::string_view(text.text()).substr(0, end), separator);
    if (found == std::string_view::npos) break;
    add_part(budget, parts, text, found + separator.size(), end);
    end = found;
  }
  add_part(budget, parts, text, 0, end);
  return reversed(std::move(parts));
}

std::vector<MarkedText> split_at_space(Budget& budget, const MarkedText& text, long max_cuts) {
  const std::string_view whole = text.text();
  std::vector<MarkedText> parts;
  std::size_t at = 0;
  const auto skip = [&](bool space) {
    while (at < whole.size()) {
      const Character c = character_from(whole, at);
      if (is_space(c.value) != space) break;
      at = c.end;
    }
  };
  budget.walk(whole.size());
  for (skip(true); at < whole.size(); skip(true)) {
    const std::size_t begin = at;
    if (max_cuts >= 0 && static_cast<long>(parts.size()) == max_cuts) {
      add_part(budget, parts, text, begin, whole.size());  // the rest, with the space at its end
      break;
    }
    skip(false);
    add_part(budget, parts, text, begin, at);
  }
  return parts;
}

std::vector<MarkedText> split_at_space_from_right(Budget& budget, const MarkedText& text, long max_cuts) {
  const std::string_view whole = text.text();
  std::vector<MarkedText> parts;
  std::size_t at = whole.size();
  const auto skip = [&](bool space) {
    while (at > 0) {
      const Character c = character_before(whole, at);
      if (is_space(c.value) != space) break;
      at = c.begin;
    }
  };
  budget.walk(whole.size());
  for (skip(true); at > 0; skip(true)) {
    const std::size_t end = at;
    if (max_cuts >= 0 && static_cast<long>(parts.size()) == max_cuts) {
      add_part(budget, parts, text, 0, end);
      break;
    }
    skip(false);
    add_part(budget, parts, text, at, end);
  }
  return reversed(std::move(parts));
}

std::vector<MarkedText> split_lines(Budget& budget, const MarkedText& text, bool keep_ends) {
  const std::string_view whole = text.text();
  std::vector<MarkedText> parts;
  budget.walk(whole.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < whole.size();) {
    const Character c = character_from(whole, at);
    at = c.end;
    if (!is_line_end(c.value)) continue;
    if (c.value == '\r' && at < whole.size() && whole[at] == '\n') ++at;
    add_part(budget, parts, text, begin, keep_ends ? at : c.begin);
    begin = at;
  }
  if (begin < whole.size()) add_part(budget, parts, text, begin, whole.size());
  return parts;
}

MarkedText replace(Budget& budget, const MarkedText& text, const MarkedText& old_text,
                   const MarkedText& new_text, long max_count) {
  TextBuilder out(budget);
  std::size_t at = 0;
  long done = 0;
  const auto may_go_on = [&] { return max_count < 0 || done < max_count; };
  if (old_text.empty()) {  // Python puts the new text before every character and at the end
    for_each_character(text.text(), [&](const Character& c) {
      if (may_go_on()) {
        out.append(new_text);
        ++done;
      }
      out.append(text, c.begin, c.end);
    });
    if (may_go_on()) out.append(new_text);
    return out.take();
  }
  while (may_go_on()) {
    const std::size_t found = find_in(budget, text.text(), old_text.text(), at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(new_text);
    at = found + old_text.size();
    ++done;
  }
  out.append(text, at, text.size());
  return out.take();
}

MarkedText repeat(Budget& budget, const MarkedText& text, std::size_t count) {
  if (!text.empty()) budget.check_text_size(count > kTextBytesMax ? UINT64_MAX : count * text.size());
  TextBuilder out(budget);
  for (std::size_t i = 0; i < count && !text.empty(); ++i) out.append(text);
  return out.take();
}

std::size_t find_in(Budget& budget, std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  // memmem is linear for every needle; std::string_view::find is not.
  const void* found =
      wanted.empty() ? rest.data() : ::memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  if (found == nullptr) {
    budget.copy(rest.size() + wanted.size());
    return std::string_view::npos;
  }
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(found) - rest.data());
  budget.copy(offset + wanted.size());
  return from + offset;
}

std::size_t find_last_in(Budget& budget, std::string_view text, std::string_view wanted) {
  if (wanted.size() > text.size()) return std::string_view::npos;
  for (std::size_t at = text.size() - wanted.size() + 1; at-- > 0;) {
    if (at % kBytesWalkedPerStep == 0) budget.step();
    if (!wanted.empty() && text[at] != wanted[0]) continue;
    budget.step(wanted.size() / kBytesCopiedPerStep);
    if (text.substr(at, wanted.size()) == wanted) return at;
  }
  return std::string_view::npos;
}

std::size_t count_in(Budget& budget, std::string_view text, std::string_view wanted) {
  if (wanted.empty()) {
    budget.walk(text.size());
    return character_count(text) + 1;
  }
  std::size_t count = 0;
  for (std::size_t at = 0; (at = find_in(budget, text, wanted, at)) != std::string_view::npos;
       at += wanted.size())
    ++count;
  return count;
}

MarkedText pad(Budget& budget, const MarkedText& text, std::size_t left, std::size_t right,
               const MarkedText& fill) {
  TextBuilder out(budget);
  out.append(repeat(budget, fill, left));
  out.append(text);
  out.append(repeat(budget, fill, right));
  return out.take();
}

}  // namespace strata::chat_template
