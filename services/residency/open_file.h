#pragma once
// A file descriptor that is closed with its owner.

#include <unistd.h>

#include <system_error>
#include <utility>

namespace strata::residency {

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(); }

  int fd() const { return fd_; }  // below 0: could not be opened
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

inline std::string system_text(int error) { return std::generic_category().message(error); }

}  // namespace strata::residency
