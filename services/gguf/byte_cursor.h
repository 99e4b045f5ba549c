#pragma once
// One forward pass over the bytes of a file in which every number is hostile. Each read compares with what is
// left and never adds to a position before that; each error names file, byte and the item being read.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "services/base/status.h"
#include "services/gguf/printable.h"

namespace strata::gguf {

static_assert(std::endian::native == std::endian::little, "numbers are copied from the file as they are");

// What is being read, for error texts: "key 'general.name'", or "tensor 12 of 300" as long as it has no name.
struct Item {
  const char* kind = "header";
  uint64_t index = 0;
  uint64_t count = 0;
  std::string_view name;
};

class ByteCursor {
 public:
  // Both must outlive the cursor.
  ByteCursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  std::span<const std::byte> range(uint64_t begin, uint64_t end) const {
    return bytes_.subspan(begin, end - begin);
  }
  void set_item(const Item& item) { item_ = item; }

  // `what` says which field of the item it is: "dimension count".
  template <class T>
  Result<T> number(const char* what) {
    if (left() < sizeof(T)) return too_short(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t size, const char* what) {
    if (size > left()) return too_short(size, what);
    auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  // A length and that many bytes; longer than `bytes_max` is refused even where the file has them.
  Result<std::string_view> string(uint64_t bytes_max, const char* what);

  // kDataLoss (or another code) at an earlier position of this file.
  Failure error(uint64_t at, const std::string& text, Code code = Code::kDataLoss,
                std::source_location where = std::source_location::current()) const;

 private:
  Failure too_short(uint64_t wanted, const char* what,
                    std::source_location where = std::source_location::current()) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t position_ = 0;
  Item item_;
};

}  // namespace strata::gguf
