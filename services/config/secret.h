#pragma once
// Secrets that are only ever compared, such as API keys: what is kept of one is its hash. A configuration may
// hold the secret itself or already the hash; behind the loader there are hashes only.

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace strata::config {

// SHA-256, plain: secrets are compared with every request, so nothing slow will do. Keys that a machine made
// have too many bits to be guessed from it; words that a person thought up do not, so hashes are not shown.
struct SecretHash {
  std::array<unsigned char, 32> bytes = {};
  std::string text() const;  // "sha256:" and 64 lower-case hexadecimal digits
  auto operator<=>(const SecretHash&) const = default;
};

SecretHash hash_secret(std::string_view secret);

// "sha256:HEX" is a hash, anything else the secret: 1 to 256 visible ASCII characters without comma and
// square brackets, which lists are written with. Errors never repeat the text.
Result<SecretHash> read_secret(std::string_view text);

}  // namespace strata::config
