#pragma once
// A request taken from the board: checked, and planned as experts that one thread computes whole and experts
// whose rows are split over all threads (docs/board.md, "Within a worker").

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cpu-expert-worker/work_shares.h"
#include "services/model/model_weights.h"
#include "services/shm/board.h"

namespace strata::cpu_expert_worker {

// How a request is cut. Anything but the defaults is for tests and measurements.
enum class SplitRule : uint8_t { kByCost, kNone, kAll };
struct CutRules {
  SplitRule split = SplitRule::kByCost;
  // Least weights of a unit of rows: fewer are not worth a turn of the loop that takes units.
  uint32_t unit_bytes = 16384;
  uint32_t take_parts = 2;  // WorkShares
};

// What a thread keeps while it computes pieces of one request.
struct JobScratch {
  expert::ExpertScratch expert;
  // The split expert of which reading of the board lies in the scratch in the form that the down projection
  // takes. The stages come in order, so nothing else uses that memory in between.
  uint64_t reading = 0;
  uint32_t output_expert = 0;
  std::optional<quant::Activations> output_input;
  // Weights that the thread's share of Stage::kOutput reads, as far as they have not been asked for.
  std::vector<std::span<const std::byte>> output_rows;
};

class ExpertJob {
 public:
  // All memory for requests of this geometry is taken here.
  ExpertJob(std::span<const model::LayerExperts> layers, const shm::BoardGeometry& geometry, uint32_t lanes,
            const CutRules& rules = {});

  // Reads the request of the board. Every number in it is checked against the board and the model before it
  // is used: kDataLoss says what is wrong.
  Status read(const shm::Board& board);

  uint64_t ticket() const { return ticket_; }
  uint32_t expert_count() const { return static_cast<uint32_t>(runs_.size()); }
  uint64_t weight_bytes() const { return weight_bytes_; }  // that the experts read
  std::chrono::steady_clock::time_point taken_at() const { return taken_at_; }
  const StageUnits& units() const { return units_; }
  // Computes units of a stage into the board's parts (or, of Stage::kIntermediate, into the job's own
  // memory). Any thread; each unit once; Stage::kOutput only when Stage::kIntermediate is complete.
  void compute(Stage stage, const WorkShares::Claim& claim, JobScratch& scratch);
  // For a thread that holds its first claim: asks for a line of each page of the weights that its shares of
  // the split experts will read, so that the translations of their addresses are on their way together,
  // before the first of them is needed. Leaves what Stage::kOutput will read in scratch.output_rows.
  void look_ahead(const WorkShares::Claim& intermediate, const WorkShares::Claim& output,
                  JobScratch& scratch) const;
  // Makes room in a thread's scratch for any request; a scratch that has served another job is cleared.
  void prepare(JobScratch& scratch) const;

 private:
  struct Run {
    uint16_t expert = 0;
    uint32_t begin = 0;  // of tokens_ and outputs_
    uint32_t end = 0;
    uint32_t size() const { return end - begin; }
  };
  // Rows of a matrix as units: `rows` in pieces of `per_unit`, the last one takes the tail.
  struct Cut {
    uint32_t rows = 0;
    uint32_t per_unit = 1;
    uint32_t units() const { return (rows + per_unit - 1) / per_unit; }
  };

  Cut cut(uint32_t rows, std::size_t row_bytes) const;
  Status check(const shm::BoardRequest& request) const;
  Status read_pairs(const shm::Board& board, const shm::BoardRequest& request);
  void bind_input(const shm::Board& board, const shm::BoardRequest& request);
  void plan();
  expert::ExpertTask task_of(const Run& run) const;
  void compute_whole(uint32_t index, JobScratch& scratch) const;
  // Calls piece(run, index of the split expert, first row, last row) for the rows behind units of all split
  // experts.
  template <class Piece>
  void for_rows(const Cut& cut, const WorkShares::Claim& claim, const Piece& piece) const;
  expert::Intermediate intermediate_of(const Run& run);

  std::span<const model::LayerExperts> layers_;
  shm::BoardGeometry geometry_;
  uint32_t lanes_;
  CutRules rules_;
  const model::LayerExperts* layer_ = nullptr;
  quant::Numerics numerics_ = quant::Numerics::kReproducible;
  uint64_t reading_ = 0;  // counts read(); tickets are only what the other side says
  uint64_t ticket_ = 0;
  uint64_t weight_bytes_ = 0;
  std::chrono::steady_clock::time_point taken_at_;
  std::vector<Run> runs_;  // one per expert
  std::vector<uint32_t> tokens_;
  std::vector<float*> outputs_;
  std::vector<uint32_t> whole_, split_;  // indices of runs_
  Cut gate_cut_, down_cut_;
  StageUnits units_ = {};
  uint32_t width_max_ = 0;
  // Rows of the split experts between their phases; row p is pair p's. In cache lines, so that two threads
  // that write neighbouring pieces share none.
  struct alignas(kCacheLine) Line {
    float values[kCacheLine / sizeof(float)];
  };
  std::vector<Line> intermediates_;
  std::size_t intermediate_lines_ = 0;  // per row
  // Two objects, so that the memory for quantizing float32 rows stays where it is.
  std::optional<quant::Activations> q8_input_;
  quant::Activations f32_input_;
  const quant::Activations* input_ = nullptr;
};

}  // namespace strata::cpu_expert_worker
