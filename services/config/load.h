#pragma once
// Reading a deployment's configuration: the YAML file, then the environment, then --set, each over the one
// before.

#include <memory>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/config/settings.h"

namespace strata::config {

struct LoadOptions {
  std::string path = {};               // the YAML file; empty: every setting begins with its default
  std::vector<std::string> sets = {};  // "experts.slots=25%", values as YAML scalars
  bool use_environment = true;         // STRATA__EXPERTS__SLOTS=25%
  bool allow_unknown = false;          // unknown keys are warned about instead
};

// Errors: kNotFound (no such file), kInvalidArgument with "FILE:LINE:COLUMN: setting: what was expected";
// unknown keys name the nearest known one; duplicate keys are refused. Relative paths become absolute, from
// the file's folder (from --set: from the working directory if it exists there, else from the file's folder).
// Of several faults the message has the first and their number; find_faults() gives all of them.
Result<std::unique_ptr<Settings>> load(const LoadOptions& options);
std::vector<std::string> find_faults(const LoadOptions& options);

// All settings as one YAML text with absolute paths: what the supervisor hands to its children
// (RUN_DIR/config.yaml), and `strata config show`. comments: with description, unit, default and range above
// each. Hidden secrets are left out, with a comment that says how many there are.
enum class SecretsShown { kHashes, kHidden };
std::string to_yaml(const Settings& settings, bool comments, SecretsShown secrets = SecretsShown::kHashes);
// The reference page of all settings (docs/configuration.md), in Markdown.
std::string reference_markdown();
// XXH3 of to_yaml(settings, false), hex.
std::string config_hash(const Settings& settings);

}  // namespace strata::config
