#include "cpu-expert-worker/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "services/sys/cpus.h"

namespace strata::cpu_expert_worker {
namespace {

// Large enough for the disk's full speed, small enough to stop within a moment.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

// madvise takes whole pages; a tensor begins and ends anywhere in one.
void advise(std::span<const std::byte> bytes, int advice) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  // Refused advice (an older kernel, a file that shrank) leaves the page to whoever needs it first.
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, advice));
}

}  // namespace

ReadAhead::ReadAhead(std::span<const model::LayerExperts> layers, uint64_t bytes_max, Part part) {
  const auto add_range = [this](std::span<const std::byte> range) {
    for (std::size_t at = 0; at < range.size(); at += kPieceBytes) {
      pieces_.push_back(range.subspan(at, std::min(kPieceBytes, range.size() - at)));
    }
    total_bytes_ += range.size();
  };
  const auto add = [&](const quant::Matrix& first, std::size_t expert_bytes, uint32_t count) {
    const std::span<const std::byte> tensor(first.data, expert_bytes * count);
    if (part.of <= 1) return add_range(tensor);
    for (std::size_t e = part.index % part.of; e < count; e += part.of)
      add_range(tensor.subspan(e * expert_bytes, expert_bytes));
  };
  for (const model::LayerExperts& layer : layers) {
    add(layer.gate, layer.gate_expert_bytes, layer.count);
    add(layer.up, layer.up_expert_bytes, layer.count);
    add(layer.down, layer.down_expert_bytes, layer.count);
  }
  thread_ = std::thread([this, bytes_max] { run(bytes_max); });
}

ReadAhead::~ReadAhead() {
  stopping_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void ReadAhead::run(uint64_t bytes_max) {
  sys::name_this_thread("read-ahead");
  uint64_t read = 0, asked = 0;
  std::size_t next_asked = 0;
  for (std::size_t i = 0; i < pieces_.size() && !stopping_.load(std::memory_order_relaxed); ++i) {
    if (read + pieces_[i].size() > bytes_max) break;
    // The disk fetches what comes next while the page tables are filled with this piece.
    for (; next_asked < pieces_.size() && asked < read + 2 * kPieceBytes; ++next_asked) {
      advise(pieces_[next_asked], MADV_WILLNEED);
      asked += pieces_[next_asked].size();
    }
    advise(pieces_[i], MADV_POPULATE_READ);
    read += pieces_[i].size();
    read_bytes_.store(read, std::memory_order_relaxed);
  }
  finished_.store(true, std::memory_order_relaxed);
}

}  // namespace strata::cpu_expert_worker
