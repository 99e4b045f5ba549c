// The code book types: 8 or 4 values at once are an entry of a fixed book, times a scale per 16 or 32 values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "services/quant/code_books.h"
#include "tools/make-model/block_bits.h"
#include "tools/make-model/encoder.h"

namespace strata::make_model {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kRun = 8;  // values that share a byte of signs
constexpr uint32_t kRuns = kBlock / kRun;

enum class Signs { kNone, kEven, kFree };

// A code has two bytes of levels, `values` in all; a level is what it multiplies d * (2 scale + 1) by.
struct Book {
  std::span<const uint16_t> codes;
  uint32_t values;
  std::array<float, 16> levels;
  Signs signs;
  float shift;           // added to or taken from every level, the same for a group or run
  uint32_t shift_group;  // values that share its sign
  uint32_t scale_group;  // values that share a scale
  uint32_t scale_max;    // scales are 0..scale_max
  // The scale that fits normal values best, in standard deviations: found by trying.
  float spread;
};

constexpr std::array<float, 16> scaled_levels(std::span<const uint8_t> levels, float unit) {
  std::array<float, 16> scaled{};
  for (std::size_t i = 0; i < levels.size(); ++i) scaled[i] = static_cast<float>(levels[i]) / unit;
  return scaled;
}
constexpr std::array<float, 16> kIq1 = {-1, 0, 1};
constexpr std::array<float, 16> kIq2 = scaled_levels(quant::kIq2Levels, 8);
constexpr std::array<float, 16> kIq3Xxs = scaled_levels(quant::kIq3XxsLevels, 4);
constexpr std::array<float, 16> kIq3S = {1, 3, 5, 7, 9, 11, 13, 15};

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

// The entry whose levels times `scale` are nearest to x. An entry is two bytes, so its error is the sum of
// two looked-up ones.
void find_entry(const Book& book, const float* x, float scale, float shift, uint16_t* entry, double* error) {
  const uint32_t per_byte = book.values / 2, bits = 8 / per_byte;
  float byte_error[2][256];
  for (uint32_t half = 0; half < 2; ++half) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      float sum = 0;
      for (uint32_t v = 0; v < per_byte; ++v) {
        const float level = book.levels[(byte >> bits * v) & ((1u << bits) - 1)] + shift;
        const float difference = x[half * per_byte + v] - scale * level;
        sum += difference * difference;
      }
      byte_error[half][byte] = sum;
    }
  }
  float best = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < book.codes.size(); ++i) {
    const float found = byte_error[0][book.codes[i] & 255] + byte_error[1][book.codes[i] >> 8];
    if (found >= best) continue;
    best = found;
    *entry = static_cast<uint16_t>(i);
  }
  *error += best;
}

Run fit_run(const Book& book, const float* x, float scale, bool shifted_up) {
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
    find_entry(book, magnitude + i * book.values, scale, shift, &run.entry[i], &run.error);
  return run;
}

// A block, before its bits are put where the type has them.
struct Fit {
  float d = 0;
  uint32_t scale[kBlock / 16] = {};  // by group
  Run runs[kRuns];
};

// The runs of one group with this scale; the sign of the shift is chosen per shift group.
void fit_group(const Book& book, const float* x, float scale, Run* runs) {
  const uint32_t together = std::min(book.shift_group, book.scale_group) / kRun;
  for (uint32_t first = 0; first < book.scale_group / kRun; first += together) {
    double best = std::numeric_limits<double>::max();
    for (const bool up : {true, false}) {
      if (!up && book.shift == 0) continue;
      Run tried[kBlock / kRun];
      double sum = 0;
      for (uint32_t i = 0; i < together; ++i) {
        tried[i] = fit_run(book, x + (first + i) * kRun, scale, up);
        sum += tried[i].error;
      }
      if (sum >= best) continue;
      best = sum;
      std::copy_n(tried, together, runs + first);
    }
  }
}

Fit fit_codes(const Book& book, const float* x) {
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
    fit_group(book, x + g * book.scale_group, scale, fit.runs + g * book.scale_group / kRun);
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
  const Fit fit = fit_codes(kIq1SBook, x);
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
  const Fit fit = fit_codes(kIq1MBook, x);
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
  const Fit fit = fit_codes(kIq2XxsBook, x);
  put_half(block, fit.d);
  for (uint32_t g = 0; g < 8; ++g) {
    for (uint32_t k = 0; k < 4; ++k)
      block[2 + 8 * g + k] = static_cast<std::byte>(fit.runs[4 * g + k].entry[0]);
    put(block + 6 + 8 * g, signs_and_scale(fit, g));
  }
}

void encode_iq2_xs(const float* x, std::byte* block) {
  const Fit fit = fit_codes(kIq2XsBook, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    const uint32_t word = fit.runs[p].entry[0] | (fit.runs[p].signs & 127u) << 9;
    put(block + 2 + 2 * p, static_cast<uint16_t>(word));
  }
  for (uint32_t g = 0; g < 16; ++g) add_bits(block[66 + g / 2], fit.scale[g], 4 * (g % 2));
}

void encode_iq2_s(const float* x, std::byte* block) {
  const Fit fit = fit_codes(kIq2SBook, x);
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
  const Fit fit = fit_codes(kIq3XxsBook, x);
  put_half(block, fit.d);
  for (uint32_t p = 0; p < kRuns; ++p) {
    for (uint32_t i = 0; i < 2; ++i) block[2 + 2 * p + i] = static_cast<std::byte>(fit.runs[p].entry[i]);
  }
  for (uint32_t g = 0; g < 8; ++g) put(block + 66 + 4 * g, signs_and_scale(fit, g));
}

void encode_iq3_s(const float* x, std::byte* block) {
  const Fit fit = fit_codes(kIq3SBook, x);
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

}  // namespace strata::make_model
