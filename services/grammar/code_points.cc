#include "services/grammar/code_points.h"

#include <algorithm>

namespace strata::grammar {

CodePoints::CodePoints(std::initializer_list<CodeRange> ranges) {
  for (const CodeRange& range : ranges) add(range.first, range.last);
}

void CodePoints::add(char32_t first, char32_t last) {
  if (first < kSurrogatesFirst) add_scalars(first, std::min<char32_t>(last, kSurrogatesFirst - 1));
  if (last > kSurrogatesLast)
    add_scalars(std::max<char32_t>(first, kSurrogatesLast + 1), std::min(last, kLastCodePoint));
}

void CodePoints::add(const CodePoints& other) {
  for (const CodeRange& range : other.ranges_) add_scalars(range.first, range.last);
}

void CodePoints::add_scalars(char32_t first, char32_t last) {
  if (first > last) return;
  // The ranges that overlap or touch the new one become one with it.
  auto begin = std::find_if(ranges_.begin(), ranges_.end(),
                            [&](const CodeRange& range) { return range.last + 1 >= first; });
  auto end =
      std::find_if(begin, ranges_.end(), [&](const CodeRange& range) { return range.first > last + 1; });
  if (begin == end) {
    ranges_.insert(begin, {first, last});
    return;
  }
  *begin = {std::min(first, begin->first), std::max(last, std::prev(end)->last)};
  ranges_.erase(std::next(begin), end);
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) result.add(next, kLastCodePoint);
  return result;
}

CodePoints CodePoints::intersection(const CodePoints& other) const {
  CodePoints result;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    result.add_scalars(std::max(a->first, b->first), std::min(a->last, b->last));
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return result;
}

bool CodePoints::contains(char32_t value) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const CodeRange& range) { return range.first <= value && value <= range.last; });
}

namespace {

constexpr uint32_t kContinuationBits = 6;

uint32_t utf8_length(char32_t value) {
  return value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
}

std::array<uint8_t, 4> utf8_bytes(char32_t value, uint32_t length) {
  constexpr std::array<uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  std::array<uint8_t, 4> bytes{};
  for (uint32_t i = 3; i >= 1; --i) {
    if (i >= length) continue;
    bytes[i] = static_cast<uint8_t>(0x80 | (value & 0x3F));
    value >>= kContinuationBits;
  }
  bytes[0] = static_cast<uint8_t>(kLead[length] | value);
  return bytes;
}

}  // namespace

void for_each_utf8_sequence(CodeRange range, const std::function<void(std::span<const ByteRange>)>& visit) {
  // Cut where the number of bytes changes, then where a block of continuation bytes is only partly inside.
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (range.first <= end && end < range.last) {
      for_each_utf8_sequence({range.first, end}, visit);
      for_each_utf8_sequence({end + 1, range.last}, visit);
      return;
    }
  }
  const uint32_t length = utf8_length(range.last);
  for (uint32_t i = 1; i < length; ++i) {
    const char32_t low = (char32_t{1} << (kContinuationBits * i)) - 1;
    if ((range.first & ~low) == (range.last & ~low))
      continue;  // the same block: nothing to cut at this level
    if ((range.first & low) != 0) {
      for_each_utf8_sequence({range.first, range.first | low}, visit);
      for_each_utf8_sequence({(range.first | low) + 1, range.last}, visit);
      return;
    }
    if ((range.last & low) != low) {
      for_each_utf8_sequence({range.first, (range.last & ~low) - 1}, visit);
      for_each_utf8_sequence({range.last & ~low, range.last}, visit);
      return;
    }
  }
  const auto first = utf8_bytes(range.first, length);
  const auto last = utf8_bytes(range.last, length);
  std::array<ByteRange, 4> sequence;
  for (uint32_t i = 0; i < length; ++i) sequence[i] = {first[i], last[i]};
  visit(std::span(sequence).first(length));
}

}  // namespace strata::grammar
