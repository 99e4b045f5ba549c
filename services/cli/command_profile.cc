// strata profile show: where a profile is hot.
#include <algorithm>
#include <fstream>
#include <numeric>

#include "services/cli/commands.h"
#include "services/cli/heat_map.h"
#include "services/cli/terminal.h"
#include "services/gguf/gguf_file.h"
#include "services/residency/profile.h"

namespace strata::cli {

namespace {

constexpr uint32_t kColumnsDefault = 100;  // where the output is no terminal

// How much of a layer's use its most used experts carry: share of the top tenth and quarter, and how many
// make up half.
std::string layer_line(const residency::Profile& profile, uint32_t layer, uint32_t top) {
  std::vector<uint64_t> counts(profile.counts.begin() + int64_t{layer} * profile.experts,
                               profile.counts.begin() + (int64_t{layer} + 1) * profile.experts);
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  auto share_of = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t i = 0; i < first; ++i) sum += static_cast<double>(counts[order[i]]);
    return total > 0 ? 100 * sum / total : 0;
  };
  std::size_t half = 0;
  while (half < order.size() && share_of(half) < 50) ++half;
  std::string line = fmt::format("{:5}  {:6.1f}%  {:6.1f}%  {:8}  ", layer, share_of((order.size() + 9) / 10),
                                 share_of((order.size() + 3) / 4), half);
  for (std::size_t i = 0; i < std::min<std::size_t>(top, order.size()); ++i) {
    line += fmt::format(" {}:{:.1f}%", order[i],
                        total > 0 ? 100 * static_cast<double>(counts[order[i]]) / total : 0);
  }
  return line;
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << text).flush()) return fail(Code::kPermissionDenied, "{}: cannot be written", path);
  return {};
}

}  // namespace

int run_profile_show(const ProfileShowOptions& options) {
  std::string fingerprint;
  if (!options.model.empty()) {
    auto model = gguf::GgufFile::open(options.model);
    if (!model) return report(model.error(), kExitFault);
    fingerprint = model->fingerprint();
  }
  auto profile = residency::read_profile(options.path, fingerprint);
  if (!profile) return report(profile.error(), kExitFault);
  fmt::print("model {}, {} layers of {} experts, {} answer tokens\n\n",
             profile->model_fingerprint.empty() ? "unknown" : profile->model_fingerprint, profile->layers,
             profile->experts, profile->tokens);
  if (options.map) fmt::print("{}\n", heat_map_text(*profile, terminal_columns(kColumnsDefault)));
  fmt::print("layer  top 10%  top 25%  for half   most used (expert:share)\n");
  for (uint32_t layer = 0; layer < profile->layers; ++layer)
    fmt::print("{}\n", layer_line(*profile, layer, options.top));
  if (options.svg.empty()) return 0;
  const Status written = write_text(options.svg, heat_map_svg(*profile));
  return written.ok() ? 0 : report(written, kExitFailed);
}

}  // namespace strata::cli
