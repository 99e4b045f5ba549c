#pragma once
// Little-endian fields one after the other, without padding: how identities, manifests and headers become
// bytes.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/snapshot/hash128.h"

namespace strata::snapshot {

static_assert(std::endian::native == std::endian::little, "fields are stored as they lie in memory");

class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    raw(std::as_bytes(std::span(&value, 1)));
  }
  void put(const Hash128& hash) {
    put(hash.high);
    put(hash.low);
  }
  void put(std::string_view text) {  // u32 length, then the bytes
    put(static_cast<uint32_t>(text.size()));
    raw(std::as_bytes(std::span(text)));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void put_list(std::span<const T> values) {  // u32 count, then the values
    put(static_cast<uint32_t>(values.size()));
    raw(std::as_bytes(values));
  }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads back what a ByteWriter wrote. A field that reaches beyond the end makes ok() false for good and reads
// as zero, so that a parser checks once, at its end. Nothing is allocated for a count that the bytes cannot
// hold.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value{};
    const auto field = take(sizeof value);
    if (!field.empty()) std::memcpy(&value, field.data(), sizeof value);
    return value;
  }
  Hash128 get_hash() {
    const auto high = get<uint64_t>();
    return {.high = high, .low = get<uint64_t>()};
  }
  std::string get_text(std::size_t length_max) {
    const auto length = get<uint32_t>();
    if (length > length_max) ok_ = false;
    const auto text = take(length);
    return text.empty() ? std::string()
                        : std::string(reinterpret_cast<const char*>(text.data()), text.size());
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  std::vector<T> get_list() {
    const auto count = get<uint32_t>();
    const auto values = take(std::size_t{count} * sizeof(T));
    std::vector<T> list(values.size() / sizeof(T));
    if (!list.empty()) std::memcpy(list.data(), values.data(), values.size());
    return list;
  }
  // How many elements of at least `element_bytes` each follow; 0 and not ok() if so many do not fit.
  uint32_t get_count(std::size_t element_bytes) {
    const auto count = get<uint32_t>();
    if (count > (bytes_.size() - at_) / element_bytes) ok_ = false;
    return ok_ ? count : 0;
  }

  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }
  std::size_t position() const { return at_; }

 private:
  std::span<const std::byte> take(std::size_t size) {
    if (!ok_ || size > bytes_.size() - at_) {
      ok_ = false;
      return {};
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace strata::snapshot
