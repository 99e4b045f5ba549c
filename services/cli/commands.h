#pragma once
// The commands of `strata`, as main.cc calls them with parsed options. Each returns the exit code: 0 done, 1
// it did not work, 2 a start-up fault (configuration, model, options), 3 no cluster runs in that run
// directory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/config/load.h"

namespace strata::cli {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitFault = 2;
inline constexpr int kExitNotRunning = 3;

struct UpOptions {
  config::LoadOptions load;
  std::string run_dir;
  std::string listen;  // empty: as configured
  bool detach = false;
};
int run_up(UpOptions options);

struct DownOptions {
  std::string run_dir;
};
int run_down(const DownOptions& options);

struct StatusOptions {
  std::string run_dir;
  bool json = false;
};
int run_status(const StatusOptions& options);

struct TopOptions {
  std::string run_dir;
  double interval_seconds = 1;
  uint32_t count = 0;  // looks to show; 0: on a terminal until it is stopped, elsewhere one
};
int run_top(const TopOptions& options);

struct ChatOptions {
  std::string run_dir;
  std::string url;  // empty: the cluster of run_dir
  std::string system;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<uint64_t> seed;
  uint32_t max_tokens = 0;  // 0: the server's choice
};
int run_chat(const ChatOptions& options);

struct InspectOptions {
  std::string path;
  bool tensors = false;
  bool json = false;
};
int run_inspect(const InspectOptions& options);

int run_config_check(const config::LoadOptions& options);
int run_config_show(const config::LoadOptions& options, bool comments);
int run_config_reference();

struct ProfileRecordOptions {
  std::string run_dir;
  std::string out;      // the profile; empty: none
  std::string trace;    // the trace; empty: none
  std::string prompts;  // a file with one prompt per line; empty: the built-in ones
  double seconds = 0;   // above 0: no prompts, what others ask within that time
  uint32_t max_tokens = 96;
};
int run_profile_record(const ProfileRecordOptions& options);

struct ProfileBuildOptions {
  std::string traces;  // a file, or a folder of *.bin
  std::string out;
  std::string model;    // whose profile it is; empty: nobody's, which a cluster refuses
  uint32_t layers = 0;  // of the trace; 0: the model's, or all
};
int run_profile_build(const ProfileBuildOptions& options);

struct ProfileMergeOptions {
  std::vector<std::string> paths;
  std::vector<double> weights;  // empty: each once
  std::string out;
};
int run_profile_merge(const ProfileMergeOptions& options);

struct ProfileShowOptions {
  std::string path;
  std::string model;  // checks that the profile is of this file
  std::string svg;    // also a drawing into this file
  uint32_t top = 8;
  bool map = true;  // the heat map
};
int run_profile_show(const ProfileShowOptions& options);

struct ResidencyShowOptions {
  std::string run_dir;
  bool json = false;
  double seconds = 0;  // hits and exchanges of so long from now on; 0: since the processes started
};
int run_residency_show(const ResidencyShowOptions& options);

// What is not given stays as it is.
struct ResidencyChangeOptions {
  std::string run_dir;
  bool json = false;
  std::vector<std::string> pin, unpin;  // LAYER:EXPERT
  bool unpin_all = false;
  std::string quotas;  // "12,16,..." or "auto"
  std::string policy;  // the values of the settings experts.*
  std::string exchanges_per_window;
  std::string copy_budget;
  std::string exchanges_in_flight;
};
int run_residency_change(const ResidencyChangeOptions& options);

struct ProfileCrossValidateOptions {
  std::string traces;
  std::string model;  // whose trunk layers count; empty: all of the trace, or `layers`
  std::vector<std::string> budgets = {"10%", "25%", "50%"};
  uint32_t layers = 0;
  bool json = false;
};
int run_profile_cross_validate(const ProfileCrossValidateOptions& options);

// Of a card's memory, what its driver and the worker's kernels take: an estimate (274 MiB on an H200), the
// worker asks the card.
inline constexpr uint64_t kPlanDriverBytes = uint64_t{320} << 20;

struct PlanOptions {
  config::LoadOptions load;        // no path: all settings have their defaults
  std::string device;              // host or cuda; empty: cuda if a card is named, else as configured
  std::vector<std::string> vram;   // sizes of cards, "24GiB"
  std::vector<std::string> cards;  // by name
  std::string ram;                 // "64GiB"; empty: what is available here
  std::string model;               // a GGUF file instead of the configured one
  std::string synthetic;           // a shape (services/synthetic/model_spec.h) instead
  std::string profile;             // a routing profile instead of the configured one
  bool json = false;
};
int run_plan(const PlanOptions& options);

struct BenchOptions {
  config::LoadOptions load;  // no path: all settings have their defaults
  std::string synthetic;  // a made-up model (services/synthetic/model_spec.h) instead of the configured one
  std::string routing;    // engine.synthetic_routing; "none": the router; empty: mild with `synthetic`
  std::string out;        // only writes the made-up model there
  std::string folder = "/dev/shm";  // where a made-up model lies while it is measured
  std::string json;                 // a file for the report, "-": standard output
  std::vector<uint32_t> clients = {1, 4};
  bool constrained = false;  // decoding also with answers that are held to a grammar
  std::vector<uint32_t> prompts = {512, 2048, 8192, 30000};  // tokens
  uint32_t tokens = 200;
  uint32_t warm_up_tokens = 4000;
};
int run_bench(const BenchOptions& options);

struct ProbeOptions {
  std::string pattern;       // of services/cli/probe_patterns.h, or "all"
  config::LoadOptions load;  // a cluster of its own; no path: one that runs
  std::string url;           // any OpenAI-compatible server; empty: the cluster of run_dir
  std::string run_dir;
  uint32_t conversations = 4;
  uint32_t tokens = 1500;
  uint32_t rounds = 3;
  uint32_t steps = 20;
  uint32_t answer_tokens = 24;
  std::optional<uint64_t> seed;  // none: another one each time
  uint32_t pairs = 0;            // agent loops with the configured settings and with those of `against`
  std::vector<std::string> against = {"conversations.ram_budget=0"};
  bool json = false;
  std::string plot;  // an SVG file; empty: none
};
int run_probe(const ProbeOptions& options);

struct ConversationsOptions {
  std::string run_dir;
  std::string id;             // or the beginning of one
  std::string file;           // to write or to read
  bool conversation = false;  // drop: all snapshots of the conversation that `id` belongs to
  bool all = false;           // drop: everything
  bool json = false;
};
int run_conversations_list(const ConversationsOptions& options);
int run_conversations_show(const ConversationsOptions& options);
int run_conversations_drop(const ConversationsOptions& options);
int run_conversations_export(const ConversationsOptions& options);
int run_conversations_import(const ConversationsOptions& options);

struct SimulateCommandOptions {
  std::string traces;    // a folder or file of recorded routing, or
  std::string generate;  // services/simulation/generate.h
  std::vector<std::string> budgets = {"10%", "25%", "50%"};
  std::vector<std::string> policies;           // empty: all
  std::optional<double> exchanges_per_window;  // none: one for every two layers
  double bytes_per_second = 0;                 // 0: no limit
  double windows_per_second = 150;
  uint32_t windows_per_look = 1;
  uint32_t landing_windows = 0;
  uint32_t prefill_chunk = 512;
  uint32_t layers = 0;  // 0: all but the draft layer
  uint64_t expert_bytes = 27648;
  double decay_tokens = 32;
  std::string profile;  // a file; "none"; empty: of the other conversations
  bool continuous = false;
  bool each = false;
  bool json = false;
  std::string plot;  // an SVG file; empty: none
};
int run_simulate(const SimulateCommandOptions& options);

int run_version();

// "strata: what is wrong" on standard error, one line; returns `exit_code`.
int report(const Status& status, int exit_code);

}  // namespace strata::cli
