#include "services/config/secret.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>

namespace strata::config {

namespace {

constexpr std::string_view kHashMark = "sha256:";
constexpr std::size_t kSecretBytesMax = 256;

}  // namespace

std::string SecretHash::text() const {
  std::string out(kHashMark);
  for (unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

SecretHash hash_secret(std::string_view secret) {
  SecretHash hash;
  static_assert(sizeof hash.bytes == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), hash.bytes.data());
  return hash;
}

Result<SecretHash> read_secret(std::string_view text) {
  if (text.starts_with(kHashMark)) {
    const std::string_view digits = text.substr(kHashMark.size());
    SecretHash hash;
    bool right = digits.size() == 2 * hash.bytes.size();
    for (std::size_t i = 0; right && i < hash.bytes.size(); ++i) {
      const char* begin = digits.data() + 2 * i;
      auto [end, error] = std::from_chars(begin, begin + 2, hash.bytes[i], 16);
      right = error == std::errc() && end == begin + 2;
    }
    if (right) return hash;
    return fail(Code::kInvalidArgument, "expected sha256: and 64 hexadecimal digits");
  }
  auto fits = [](char c) { return c > 0x20 && c < 0x7f && c != ',' && c != '[' && c != ']'; };
  if (!text.empty() && text.size() <= kSecretBytesMax && std::ranges::all_of(text, fits))
    return hash_secret(text);
  return fail(
      Code::kInvalidArgument,
      "expected 1 to {} visible ASCII characters without comma and square brackets, or sha256: and 64 "
      "hexadecimal digits",
      kSecretBytesMax);
}

}  // namespace strata::config
