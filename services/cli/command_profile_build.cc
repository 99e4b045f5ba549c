// strata profile build, merge, cross-validate: profiles from files alone, no cluster needed.
#include "services/cli/commands.h"
#include "services/cli/cross_validation.h"
#include "services/cli/profile_build.h"
#include "services/gguf/gguf_file.h"
#include "services/model/model_config.h"

namespace strata::cli {

namespace {

// The model that a trace was recorded from.
struct TracedModel {
  std::string fingerprint;
  uint32_t layers = 0;  // 0: nobody says
};

// kFailedPrecondition: a trace of another shape.
Result<TracedModel> traced_model(const std::string& path, uint32_t layers,
                                 const residency::RoutingTrace& trace) {
  if (path.empty()) return TracedModel{.fingerprint = {}, .layers = layers};
  TRY(const auto file, gguf::GgufFile::open(path));
  TRY(const auto config, model::read_model_config(file));
  if (trace.layers < config.layers || trace.experts != config.experts || trace.used != config.experts_used) {
    return fail(Code::kFailedPrecondition,
                "the trace has {} layers of {} experts, {} a token; {} has {} of {}, {} a token",
                trace.layers, trace.experts, trace.used, path, config.layers, config.experts,
                config.experts_used);
  }
  return TracedModel{.fingerprint = file.fingerprint(), .layers = layers == 0 ? config.layers : layers};
}

Status write(const residency::Profile& profile, const std::string& path) {
  TRY_OK(residency::write_profile(profile, path));
  fmt::print("{}: {} layers of {} experts, {} answer tokens\n", path, profile.layers, profile.experts,
             profile.tokens);
  return {};
}

Status run_build(const ProfileBuildOptions& options) {
  TRY(const auto trace, read_traces(options.traces));
  TRY(const TracedModel model, traced_model(options.model, options.layers, trace));
  TRY(residency::Profile profile, profile_of(trace, model.layers));
  profile.model_fingerprint = model.fingerprint;
  return write(profile, options.out);
}

Status run_merge(const ProfileMergeOptions& options) {
  std::vector<NamedProfile> profiles;
  for (const std::string& path : options.paths) {
    TRY(auto profile, residency::read_profile(path));
    profiles.push_back({path, std::move(profile)});
  }
  TRY(const residency::Profile merged, merge_profiles(profiles, options.weights));
  return write(merged, options.out);
}

Status run_validation(const ProfileCrossValidateOptions& options) {
  TRY(const auto trace, read_traces(options.traces));
  TRY(const TracedModel model, traced_model(options.model, options.layers, trace));
  TRY(const auto budgets, cross_validate(trace, options.budgets, model.layers));
  fmt::print("{}", options.json ? cross_validation_json(budgets) + "\n" : cross_validation_text(budgets));
  return {};
}

int exit_of(const Status& done) { return done.ok() ? 0 : report(done, kExitFault); }

}  // namespace

int run_profile_build(const ProfileBuildOptions& options) { return exit_of(run_build(options)); }
int run_profile_merge(const ProfileMergeOptions& options) { return exit_of(run_merge(options)); }
int run_profile_cross_validate(const ProfileCrossValidateOptions& options) {
  return exit_of(run_validation(options));
}

}  // namespace strata::cli
