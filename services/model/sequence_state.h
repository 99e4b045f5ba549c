#pragma once
// All that is needed to go on with a conversation at a position between two tokens (spec: model-qwen4exp
// section 10). Float32 throughout on the host device.

#include <cstdint>
#include <vector>

#include "services/base/status.h"
#include "services/model/model_config.h"

namespace strata::model {

struct AttentionState {     // one attention layer
  std::vector<float> k, v;  // (capacity, nkv, d), keys after norm and rotation
  std::vector<float>
      raw;  // (r - 1, di): raw indexer keys of the unfinished tail; the first position % r count
  std::vector<float> pooled;  // (capacity / r, di): finished block keys
};

struct DeltaNetState {      // one recurrent layer
  std::vector<float> s;     // (nv, s, s): [head][key][value]
  std::vector<float> conv;  // (K1-1, channels), oldest first
};

// Where the parts of a state are copied to that change with every token: all but keys, values and block keys,
// which no later token changes. Sizes are those of the state's own arrays.
struct FixedState {
  struct Layer {
    float *s = nullptr, *conv = nullptr;  // of a recurrent layer
    float* raw = nullptr;                 // of an attention layer with an indexer
  };
  std::vector<Layer> layers;  // (layers)
  float* ngram_conv = nullptr;
  int32_t* ngram_context = nullptr;
};

class SequenceState {
 public:
  // Allocates for `capacity_tokens` tokens; zero state. Growing later is not possible.
  SequenceState(const ModelConfig& config, uint32_t capacity_tokens);

  void reset();                                    // back to the empty sequence, memory kept
  uint32_t position() const { return position_; }  // tokens seen
  // The arrays hold the state behind so many tokens: somebody else wrote it there.
  void set_position(uint32_t tokens) { position_ = tokens; }
  uint32_t capacity() const { return capacity_; }
  std::size_t bytes() const;
  static std::size_t bytes_needed(const ModelConfig& config, uint32_t capacity_tokens);

  // Written by Forward only.
  uint32_t position_ = 0;
  uint32_t capacity_ = 0;
  std::vector<AttentionState> attention;  // (layers); empty entries for recurrent layers
  std::vector<DeltaNetState> delta;       // (layers)
  std::vector<float> ngram_conv;          // (N*(K2-1), C*H), oldest first
  std::vector<int32_t> ngram_context;     // (N-1), oldest first, initially the cut token

 private:
  int32_t ngram_cut_token_ = -1;
};

}  // namespace strata::model
