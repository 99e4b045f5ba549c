// strata plan: what fits where, before anything is started.
#include <algorithm>

#include "services/cli/commands.h"
#include "services/cli/planner.h"
#include "services/gguf/gguf_file.h"
#include "services/synthetic/model_outline.h"
#include "services/synthetic/model_spec.h"
#include "services/sys/cpus.h"

namespace strata::cli {

namespace {

// What is compared where neither the command line nor the configuration names a card.
const std::vector<std::string> kUsualSizes = {"8GiB", "12GiB", "16GiB", "24GiB", "32GiB", "48GiB", "80GiB"};

Result<uint64_t> read_size(std::string_view option, const std::string& text) {
  config::Settings settings;  // reads sizes as settings are read
  const Status status = settings.device_vram_budget.parse(text);
  const auto bytes = settings.device_vram_budget().bytes;
  if (!status.ok()) return fail(Code::kInvalidArgument, "{}: {}", option, status.message());
  if (!bytes) return fail(Code::kInvalidArgument, "{}: expected a size, got auto", option);
  return *bytes;
}

Result<gguf::GgufFile> open_model(const PlanOptions& options, const config::Settings& settings) {
  if (!options.synthetic.empty()) {
    TRY(const auto request, synthetic::parse_model_spec(options.synthetic));
    TRY(const auto plan, synthetic::plan_model(request));
    return synthetic::open_outline(plan);
  }
  const std::string path = options.model.empty() ? settings.model_path().string() : options.model;
  if (path.empty()) {
    return fail(
        Code::kInvalidArgument,
        "no model to plan for: --config names a deployment, --model a GGUF file, --synthetic a shape");
  }
  return gguf::GgufFile::open(path);
}

// The cards to plan for, of those that the command line and the settings name.
Result<std::vector<Card>> cards_of(const PlanOptions& options, const config::Settings& settings) {
  TRY(std::vector<Card> cards, find_cards(options.cards));
  std::vector<std::string> sizes = options.vram;
  const auto budget = settings.device_vram_budget().bytes;
  if (cards.empty() && sizes.empty() && !budget) sizes = kUsualSizes;
  for (const std::string& size : sizes) {
    TRY(const uint64_t bytes, read_size("--vram", size));
    cards.push_back({.name = size, .bytes = bytes});
  }
  if (cards.empty()) cards.push_back({.name = "device.vram_budget", .bytes = *budget});
  return cards;
}

bool wants_cuda(const PlanOptions& options, const config::Settings& settings) {
  if (!options.device.empty()) return options.device == "cuda";
  return !options.vram.empty() || !options.cards.empty() || settings.device_type() == "cuda";
}

// What experts.profile or --profile holds. One that the command line names must be of this model; a made-up
// model has none.
Result<std::optional<residency::Profile>> find_profile(const PlanOptions& options, const std::string& path,
                                                       const gguf::GgufFile& file) {
  const bool asked = !options.profile.empty();
  if (path.empty() || (!options.synthetic.empty() && !asked)) return std::nullopt;
  auto profile = residency::read_profile(path, file.fingerprint());
  if (profile) return *profile;
  if (!asked && profile.error().code() == Code::kNotFound) return std::nullopt;
  return tl::unexpected(profile.error());
}

Result<std::vector<PlannedMachine>> plan_all(const PlanOptions& options, const PlanSubject& subject) {
  if (!wants_cuda(options, *subject.settings)) return std::vector<PlannedMachine>{plan_host(subject)};
  TRY(const std::vector<Card> cards, cards_of(options, *subject.settings));
  std::vector<PlannedMachine> machines;
  for (const Card& card : cards) {
    TRY(auto machine, plan_card(subject, card));
    machines.push_back(std::move(machine));
  }
  return machines;
}

Result<int> plan(const PlanOptions& options) {
  TRY(const auto settings, config::load(options.load));
  TRY(const auto file, open_model(options, *settings));
  TRY(const auto weights, model::load_model(file));
  PlanSubject subject;
  subject.model = weights.config.name;
  subject.synthetic = !options.synthetic.empty();
  subject.weights = &weights;
  subject.settings = settings.get();
  TRY(subject.context_tokens, gpu_worker::planned_context(weights.config, *settings));
  subject.profile_path = options.profile.empty() ? settings->experts_profile().string() : options.profile;
  TRY(const auto profile, find_profile(options, subject.profile_path, file));
  if (profile) subject.profile = &*profile;
  subject.ram_bytes = sys::available_memory_bytes();
  if (!options.ram.empty()) {
    TRY(subject.ram_bytes, read_size("--ram", options.ram));
  }
  TRY(const auto machines, plan_all(options, subject));
  fmt::print("{}", options.json           ? plan_json(subject, machines) + "\n"
                   : machines.size() == 1 ? plan_text(subject, machines.front())
                                          : comparison_text(subject, machines));
  const bool fits = std::ranges::any_of(machines, [](const auto& machine) { return machine.fits.ok(); });
  return fits ? 0 : kExitFailed;
}

}  // namespace

int run_plan(const PlanOptions& options) {
  const auto done = plan(options);
  return done ? *done : report(done.error(), kExitFault);
}

}  // namespace strata::cli
