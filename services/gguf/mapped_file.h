#pragma once
// A file mapped read-only and shared, so that all processes that map it use the same page cache.

#include <cstddef>
#include <span>
#include <string>

#include "services/base/status.h"

namespace strata::gguf {

class MappedFile {
 public:
  // Errors: kNotFound, kPermissionDenied, kInvalidArgument (a directory, a pipe), kResourceExhausted (files,
  // address space).
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // The size at the time of opening. Reading behind the end of a file that was cut since then raises SIGBUS.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace strata::gguf
