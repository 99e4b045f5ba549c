#pragma once
// The terminal behind standard output.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>

namespace strata::cli {

// Its width; `otherwise` where the output is no terminal.
inline uint32_t terminal_columns(uint32_t otherwise) {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace strata::cli
