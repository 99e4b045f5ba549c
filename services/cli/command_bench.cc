// strata bench: how fast a model is on this machine, or one of its shape with made-up weights, or how such a
// model is written into a file.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "services/cli/bench_cluster.h"
#include "services/cli/bench_folder.h"
#include "services/cli/bench_measure.h"
#include "services/cli/commands.h"
#include "services/cli/profile_prompts.h"
#include "services/cli/write_text.h"
#include "services/gguf/gguf_file.h"
#include "services/model/synthetic_routing.h"
#include "services/synthetic/model_file.h"
#include "services/synthetic/model_spec.h"
#include "services/sys/cpus.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::cli {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> stop_asked{false};  // by a signal
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may not wait");

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string setting(std::string_view path, std::string_view value) {
  std::string quoted;
  for (const char c : value) quoted += c == '\'' ? "''" : std::string(1, c);
  return fmt::format("{}='{}'", path, quoted);
}

Result<uint64_t> write_synthetic(const synthetic::ModelRequest& request, const std::string& path) {
  TRY(const auto plan, synthetic::plan_model(request));
  std::fprintf(stderr, "writing %.1f GB of SYNTHETIC weights to %s\n",
               static_cast<double>(plan.bytes()) * 1e-9, path.c_str());
  return synthetic::write_model_file(plan, {.path = path,
                                            .seed = request.seed,
                                            .threads = static_cast<uint32_t>(sys::allowed_cpus().size()),
                                            .cancelled = &stop_asked});
}

// The settings of the measured cluster: those of the user, and before them what a synthetic model needs.
Result<config::LoadOptions> load_options(const BenchOptions& options, const BenchFolder& folder) {
  config::LoadOptions load = options.load;
  if (load.path.empty()) {
    load.path = folder.config_path();
    TRY_OK(write_text(load.path, "{}\n"));
  }
  std::vector<std::string> sets;
  if (!options.synthetic.empty()) {
    sets = {setting("model.path", folder.model_path()), setting("model.name", ""),
            setting("experts.profile", "")};
  }
  const std::string routing =
      options.routing.empty() && !options.synthetic.empty() ? "mild" : options.routing;
  if (!routing.empty()) sets.push_back(setting("engine.synthetic_routing", routing == "none" ? "" : routing));
  load.sets.insert(load.sets.begin(), sets.begin(), sets.end());
  return load;
}

// Prompts as token ids. Of a trained model: text, so that its router does what it does; of another: any ids.
class Prompts {
 public:
  Prompts(const tokenizer::Tokenizer& tokenizer, bool trained) : vocabulary_(tokenizer.vocab_size()) {
    if (!trained) return;
    for (const std::string& text : built_in_prompts())
      for (const auto id : tokenizer.encode_untrusted(text + "\n")) text_.push_back(id);
  }

  std::vector<int32_t> operator()(uint32_t tokens, uint64_t number) const {
    synthetic::Random random(number);
    std::vector<int32_t> prompt;
    for (std::size_t at = random.next(); prompt.size() < tokens; ++at)
      prompt.push_back(text_.empty() ? static_cast<int32_t>(random.next() % vocabulary_)
                                     : text_[at % text_.size()]);
    return prompt;
  }

 private:
  const uint32_t vocabulary_;
  std::vector<int32_t> text_;
};

// Checks the settings, writes a synthetic model, opens what will be measured and says in `subject` what it
// is. Whatever can be wrong is found before the work.
Result<gguf::GgufFile> prepare_model(const BenchOptions& options, const BenchFolder& folder,
                                     const config::LoadOptions& load, BenchSubject& subject) {
  TRY(const auto settings, config::load(load));
  const std::string path = settings->model_path().string();
  if (path.empty()) {
    return fail(Code::kInvalidArgument,
                "no model to measure: --config names a deployment, --synthetic a made-up model");
  }
  subject.synthetic_routing = settings->engine_synthetic_routing();
  if (!subject.synthetic_routing.empty())
    TRY_OK(model::parse_synthetic_routing(subject.synthetic_routing).map([](const auto&) {}));
  if (!options.synthetic.empty()) {
    TRY(const auto request, synthetic::parse_model_spec(options.synthetic));
    const auto begin = Clock::now();
    TRY_OK(write_synthetic(request, folder.model_path()).map([](uint64_t) {}));
    subject.write_seconds = seconds_since(begin);
  }
  TRY(const auto file, gguf::GgufFile::open(path));
  if (file.find(synthetic::kSyntheticKey) != nullptr) {
    TRY(subject.synthetic_weights, file.get_string(synthetic::kSyntheticKey));
  }
  subject.model_bytes = file.total_bytes();
  subject.cpus = static_cast<uint32_t>(sys::allowed_cpus().size());
  if (const std::string note = synthetic_note(subject); !note.empty())
    std::fprintf(stderr, "%s\n", note.c_str());
  return file;
}

Status measure_model(const BenchOptions& options, BenchReport& report) {
  TRY(const BenchFolder folder, BenchFolder::create(options.folder));
  TRY(const auto load, load_options(options, folder));
  TRY(const auto file, prepare_model(options, folder, load, report.subject));
  TRY(const auto tokenizer, tokenizer::Tokenizer::from_gguf(file));
  BenchMeasureOptions what;
  what.run_dir = folder.run_dir();
  what.clients = options.clients;
  what.constrained = options.constrained;
  what.prompts = options.prompts;
  what.tokens = options.tokens;
  what.warm_up_tokens = options.warm_up_tokens;
  what.cancelled = &stop_asked;
  const bool trained = report.subject.synthetic_weights.empty();
  const auto ends = tokenizer.end_of_generation();
  if (trained) what.never.assign(ends.begin(), ends.end());  // a made-up model hardly ever says them
  what.prompt = Prompts(tokenizer, trained);

  const auto begin = Clock::now();
  TRY(const auto cluster, BenchCluster::start({.load = load,
                                               .run_dir = folder.run_dir(),
                                               .log_path = folder.log_path(),
                                               .cancelled = &stop_asked}));
  report.subject.start_seconds = seconds_since(begin);
  what.url = cluster.url();
  const Status measured = measure(what, report);
  // Why it broke off is in the log of the cluster, if that has ended.
  if (!measured.ok() && measured.code() != Code::kCancelled) TRY_OK(cluster.check());
  return measured;
}

int failed(const Status& status) {
  const bool fault = status.code() == Code::kInvalidArgument || status.code() == Code::kNotFound ||
                     status.code() == Code::kAlreadyExists;
  return report(status, fault ? kExitFault : kExitFailed);
}

int write_out(const BenchOptions& options) {
  const auto request = synthetic::parse_model_spec(options.synthetic);
  if (!request) return failed(request.error());
  const auto begin = Clock::now();
  const auto bytes = write_synthetic(*request, options.out);
  if (!bytes) return failed(bytes.error());
  fmt::print("{}: {} bytes in {:.1f} s; SYNTHETIC: {}\n", options.out, *bytes, seconds_since(begin),
             request->made_of);
  return 0;
}

}  // namespace

int run_bench(const BenchOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, [](int) { stop_asked.store(true); });
  if (!options.out.empty()) return write_out(options);
  BenchReport found;
  if (const Status status = measure_model(options, found); !status.ok()) return failed(status);
  const bool json_only = options.json == "-";
  std::fputs(bench_text(found).c_str(), json_only ? stderr : stdout);
  if (json_only) std::fputs(bench_json(found).c_str(), stdout);
  if (options.json.empty() || json_only) return 0;
  const Status written = write_text(options.json, bench_json(found));
  return written.ok() ? 0 : report(written, kExitFailed);
}

}  // namespace strata::cli
