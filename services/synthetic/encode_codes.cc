// The code book types: 8 or 4 values at once are an entry of a fixed book, times a scale per 16 or 32 values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "services/quant/code_books.h"
#include "services/synthetic/block_bits.h"
#include "services/synthetic/encoder.h"

namespace strata::synthetic {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kRun = 8;  // values that share a byte of signs
constexpr uint32_t kRuns = kBlock / kRun;

enum class Signs { kNone, kEven, kFree };

// A code has two bytes of levels, `values` in all; a level is what it multiplies d * (2 scale + 1) by.
struct Book {
  std::span<const uint16_t> codes;
  uint32_t values;
  std::span<const float> levels;
  Signs signs;
  float shift;           // added to or taken from every level, the same for a group or run
  uint32_t shift_group;  // values that share its sign
  uint32_t scale_group;  // values that share a scale
  uint32_t scale_max;    // scales are 0..scale_max
  // The scale that fits normal values best, in standard deviations: found by trying.
  float spread;
};

template <std::size_t kCount>
constexpr std::array<float, kCount> in_units(const uint8_t (&levels)[kCount], float unit) {
  std::array<float, kCount> scaled{};
  for (std::size_t i = 0; i < kCount; ++i) scaled[i] = static_cast<float>(levels[i]) / unit;
  return scaled;
}
constexpr std::array<float, 3> kIq1 = {-1, 0, 1};
constexpr auto kIq2 = in_units(quant::kIq2Levels, 8);
constexpr auto kIq3Xxs = in_units(quant::kIq3XxsLevels, 4);
constexpr std::array<float, 8> kIq3S = {1, 3, 5, 7, 9, 11, 13, 15};

constexpr Book kIq1SBook{quant::kIq1Codes, 8, kIq1, Signs::kNone, 0.125f, 32, 32, 7, 1.1f};
constexpr Book kIq1MBook{quant::kIq1Codes, 8, kIq1, Signs::kNone, 0.125f, 8, 16, 7, 1.1f};
constexpr Book kIq2XxsBook{quant::kIq2XxsCodes, 8, kIq2, Signs::kEven, 0, 32, 32, 15, 0.4f};
constexpr Book kIq2XsBook{quant::kIq2XsCodes, 8, kIq2, Signs::kEven, 0, 16, 16, 15, 0.4f};
constexpr Book kIq2SBook{quant::kIq2SCodes, 8, kIq2, Signs::kFree, 0, 16, 16, 15, 0.4f};
constexpr Book kIq3XxsBook{quant::kIq3XxsCodes, 4, kIq3Xxs, Signs::kEven, 0, 32, 32, 15, 0.17f};
constexpr Book kIq3SBook{quant::kIq3SCodes, 4, kIq3S, Signs::kFree, 0, 32, 32, 15, 0.17f};

// Eight values: one or two entries of the book.
struct Run {
  uint16_t entry[2] = {};
  uint8_t signs = 0;  // bit j: value j is negative
  bool shifted_up = true;
  double error = 0;
};

// For every code, whether in the book or not, the entries whose levels are nearest.
class NearestEntries {
 public:
  using Candidates = std::array<uint16_t, 8>;

  explicit NearestEntries(const Book& book) : entries_(65536) {
    const uint32_t per_byte = book.values / 2, bits = 8 / per_byte, mask = (1u << bits) - 1;
    // The distance of two codes is the sum of those of their bytes.
    std::vector<std::array<float, 256>> distance(256);
    std::vector<uint32_t> bytes;  // made of levels that exist
    for (uint32_t a = 0; a < 256; ++a) {
      bool exists = true;
      for (uint32_t v = 0; v < per_byte; ++v) exists &= (a >> bits * v & mask) < book.levels.size();
      if (exists) bytes.push_back(a);
    }
    for (const uint32_t a : bytes) {
      for (const uint32_t b : bytes) {
        float sum = 0;
        for (uint32_t v = 0; v < per_byte; ++v)
          sum += square(book.levels[a >> bits * v & mask] - book.levels[b >> bits * v & mask]);
        distance[a][b] = sum;
      }
    }
    for (const uint32_t high : bytes) {
      for (const uint32_t low : bytes)
        entries_[high << 8 | low] = search(book, distance[low], distance[high]);
    }
  }

  const Candidates& of(uint32_t code) const { return entries_[code]; }

  static float square(float x) { return x * x; }

 private:
  static Candidates search(const Book& book, const std::array<float, 256>& low,
                           const std::array<float, 256>& high) {
    std::vector<std::pair<float, uint16_t>> all;
    all.reserve(book.codes.size());
    for (const uint16_t code : book.codes)
      all.emplace_back(low[code & 255] + high[code >> 8], static_cast<uint16_t>(all.size()));
    Candidates found;
    std::ranges::partial_sort(all, all.begin() + found.size());
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = all[i].second;
    return found;
  }

  std::vector<Candidates> entries_;
};

// The best of the entries near to what x / scale is when each value is rounded by itself. Adds what it costs.
uint16_t find_entry(const Book& book, const NearestEntries& nearest, const float* x, float scale, float shift,
                    double* error) {
  const uint32_t bits = 16 / book.values;
  const auto cost = [&](uint32_t value, std::size_t level) {
    return NearestEntries::square(x[value] - scale * (book.levels[level] + shift));
  };
  uint32_t code = 0;
  for (uint32_t v = 0; v < book.values; ++v) {
    uint32_t best = 0;
    for (uint32_t level = 1; level < book.levels.size(); ++level) {
      if (cost(v, level) < cost(v, best)) best = level;
    }
    code |= best << bits * v;
  }
  uint16_t best_entry = 0;
  float best = std::numeric_limits<float>::max();
  for (const uint16_t entry : nearest.of(code)) {
    float sum = 0;
    for (uint32_t v = 0; v < book.values; ++v)
      sum += cost(v, book.codes[entry] >> bits * v & ((1u << bits) - 1));
    if (sum >= best) continue;
    best = sum;
    best_entry = entry;
  }
  *error += best;
  return best_entry;
}

Run fit_run(const Book& book, const NearestEntries& nearest, const float* x, float scale, bool shifted_up) {
  Run run{.shifted_up = shifted_up};
  float magnitude[kRun];
  uint32_t smallest = 0, negative = 0;
  for (uint32_t j = 0; j < kRun; ++j) {
    const bool minus = book.signs != Signs::kNone && std::signbit(x[j]);
    magnitude[j] = minus ? -x[j] : x[j];
    run.signs |= static_cast<uint8_t>((minus ? 1u : 0u) << j);
    negative += minus ? 1 : 0;
    if (std::fabs(x[j]) < std::fabs(x[smallest])) smallest = j;
  }
  if (book.signs == Signs::kEven && negative % 2 != 0) {
    // Only an even number can be stored: the value that loses least has the wrong sign.
    run.signs ^= static_cast<uint8_t>(1u << smallest);
    magnitude[smallest] = -magnitude[smallest];
  }
  const float shift = shifted_up ? book.shift : -book.shift;
  for (uint32_t i = 0; i < kRun / book.values; ++i)
    run.entry[i] = find_entry(book, nearest, magnitude + i * book.values, scale, shift, &run.error);
  return run;
}

// A block, before its bits are put where the type has them.
struct Fit {
  float d = 0;
  uint32_t scale[kBlock / 16] = {};  // by group
  Run runs[kRuns];
};

// The runs of one group with this scale; the sign of the shift is chosen per shift group.
void fit_group(const Book& book, const NearestEntries& nearest, const float* x, float scale, Run* runs) {
  const uint32_t together = std::min(book.shift_group, book.scale_group) / kRun;
  for (uint32_t first = 0; first < book.scale_group / kRun; first += together) {
    double best = std::numeric_limits<double>::max();
    for (const bool up : {true, false}) {
      if (!up && book.shift == 0) continue;
      Run tried[kBlock / kRun];
      double sum = 0;
      for (uint32_t i = 0; i < together; ++i) {
        tried[i] = fit_run(book, nearest, x + (first + i) * kRun, scale, up);
        sum += tried[i].error;
      }
      if (sum >= best) continue;
      best = sum;
      std::copy_n(tried, together, runs + first);
    }
  }
}

Fit fit_codes(const Book& book, const NearestEntries& nearest, const float* x) {
  Fit fit;
  const uint32_t groups = kBlock / book.scale_group;
  float wanted[kBlock / 16] = {}, largest = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    double squares = 0;
    for (uint32_t i = 0; i < book.scale_group; ++i) squares += std::pow(x[g * book.scale_group + i], 2);
    wanted[g] = book.spread * static_cast<float>(std::sqrt(squares / book.scale_group));
    largest = std::max(largest, wanted[g]);
  }
  fit.d = round_to_half(largest / static_cast<float>(2 * book.scale_max + 1));
  for (uint32_t g = 0; g < groups; ++g) {
    const float ratio = fit.d == 0 ? 0 : (wanted[g] / fit.d - 1) / 2;
    fit.scale[g] =
        static_cast<uint32_t>(std::clamp(std::nearbyint(ratio), 0.0f, static_cast<float>(book.scale_max)));
    const float scale = fit.d * static_cast<float>(2 * fit.scale[g] + 1);
    fit_group(book, nearest, x + g * book.scale_group, scale, fit.runs + g * book.scale_group / kRun);
  }
  return fit;
}

// Four 7-bit sign codes and the scale of group g (32 values); the eighth sign follows from the others.
uint32_t signs_and_scale(const Fit& fit, uint32_t g) {
  uint32_t word = fit.scale[g] << 28;
  for (uint32_t k = 0; k < 4; ++k) word |= (fit.runs[4 * g + k].signs & 127u) << 7 * k;
  return word;
}

}  // namespace

void encode_iq1_s(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq1SBook);
  const Fit fit = fit_codes(kIq1SBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t g = 0; g < 8; ++g) {
    uint32_t word = fit.scale[g] << 12 | (fit.runs[4 * g].shifted_up ? 0u : 1u << 15);
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t entry = fit.runs[4 * g + k].entry[0];
      block[2 + 4 * g + k] = static_cast<std::byte>(entry & 255);
      word |= (entry >> 8) << 3 * k;
    }
    put(block + 34 + 2 * g, static_cast<uint16_t>(word));
  }
}

void encode_iq1_m(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq1MBook);
  const Fit fit = fit_codes(kIq1MBook, nearest, x);
  for (uint32_t p = 0; p < kRuns; ++p) {
    const uint32_t entry = fit.runs[p].entry[0];
    block[p] = static_cast<std::byte>(entry & 255);
    add_bits(block[32 + p / 2], entry >> 8 | (fit.runs[p].shifted_up ? 0u : 8u), 4 * (p % 2));
  }
  const uint32_t d = half_bits(fit.d);
  for (uint32_t word = 0; word < 4; ++word) {
    uint32_t bits = ((d >> 4 * word) & 15) << 12;
    for (uint32_t i = 0; i < 4; ++i) bits |= fit.scale[4 * word + i] << 3 * i;
    put(block + 48 + 2 * word, static_cast<uint16_t>(bits));
  }
}

void encode_iq2_xxs(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq2XxsBook);
  const Fit fit = fit_codes(kIq2XxsBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t g = 0; g < 8; ++g) {
    for (uint32_t k = 0; k < 4; ++k)
      block[2 + 8 * g + k] = static_cast<std::byte>(fit.runs[4 * g + k].entry[0]);
    put(block + 6 + 8 * g, signs_and_scale(fit, g));
  }
}

void encode_iq2_xs(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq2XsBook);
  const Fit fit = fit_codes(kIq2XsBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    const uint32_t word = fit.runs[p].entry[0] | (fit.runs[p].signs & 127u) << 9;
    put(block + 2 + 2 * p, static_cast<uint16_t>(word));
  }
  for (uint32_t g = 0; g < 16; ++g) add_bits(block[66 + g / 2], fit.scale[g], 4 * (g % 2));
}

void encode_iq2_s(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq2SBook);
  const Fit fit = fit_codes(kIq2SBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    const uint32_t entry = fit.runs[p].entry[0];
    block[2 + p] = static_cast<std::byte>(entry & 255);
    block[34 + p] = static_cast<std::byte>(fit.runs[p].signs);
    add_bits(block[66 + p / 4], entry >> 8, 2 * (p % 4));
  }
  for (uint32_t g = 0; g < 16; ++g) add_bits(block[74 + g / 2], fit.scale[g], 4 * (g % 2));
}

void encode_iq3_xxs(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq3XxsBook);
  const Fit fit = fit_codes(kIq3XxsBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    for (uint32_t i = 0; i < 2; ++i) block[2 + 2 * p + i] = static_cast<std::byte>(fit.runs[p].entry[i]);
  }
  for (uint32_t g = 0; g < 8; ++g) put(block + 66 + 4 * g, signs_and_scale(fit, g));
}

void encode_iq3_s(const float* x, std::byte* block) {
  static const NearestEntries nearest(kIq3SBook);
  const Fit fit = fit_codes(kIq3SBook, nearest, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t entry = fit.runs[p].entry[i], place = 2 * p + i;
      block[2 + place] = static_cast<std::byte>(entry & 255);
      add_bits(block[66 + place / 8], entry >> 8, place % 8);
    }
    block[74 + p] = static_cast<std::byte>(fit.runs[p].signs);
  }
  for (uint32_t g = 0; g < 8; ++g) add_bits(block[106 + g / 2], fit.scale[g], 4 * (g % 2));
}

}  // namespace strata::synthetic
