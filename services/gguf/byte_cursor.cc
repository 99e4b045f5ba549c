#include "services/gguf/byte_cursor.h"

namespace strata::gguf {

Result<std::string_view> ByteCursor::string(uint64_t bytes_max, const char* what) {
  const uint64_t at = position_;
  TRY(const uint64_t length, number<uint64_t>(what));
  if (length > bytes_max) {
    return error(at, fmt::format("{} is {} bytes long, expected at most {}", what, length, bytes_max));
  }
  TRY(const auto bytes, take(length, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Failure ByteCursor::error(uint64_t at, const std::string& text, Code code, std::source_location where) const {
  std::string item = item_.kind;
  if (!item_.name.empty()) {
    item += fmt::format(" '{}'", printable(item_.name));
  } else if (item_.count > 0) {
    item += fmt::format(" {} of {}", item_.index + 1, item_.count);
  }
  return Failure(Status(code, fmt::format("{}: byte {}: {}: {}", file_, at, item, text), where));
}

Failure ByteCursor::too_short(uint64_t wanted, const char* what, std::source_location where) const {
  return error(position_,
               fmt::format("{}: expected {} bytes, but the file ends after {}", what, wanted, left()),
               Code::kDataLoss, where);
}

}  // namespace strata::gguf
