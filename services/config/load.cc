#include "services/config/load.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "services/config/nearest.h"
#include "services/obs/log.h"

namespace strata::config {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnvironmentPrefix = "STRATA__";
constexpr std::uintmax_t kFileBytesMax = 1 << 20;

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  auto kind = fs::status(path, error).type();
  if (kind == fs::file_type::not_found) return fail(Code::kNotFound, "{}: no such configuration file", path);
  if (kind == fs::file_type::directory)
    return fail(Code::kInvalidArgument, "{}: is a folder, not a configuration file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::kPermissionDenied, "{}: cannot be read", path);
  std::string text(kFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) return fail(Code::kUnknown, "{}: cannot be read", path);
  if (text.size() > kFileBytesMax) {
    return fail(Code::kInvalidArgument, "{}: more than {} bytes, no configuration file", path, kFileBytesMax);
  }
  return text;
}

std::string place(const std::string& file, const YAML::Mark& mark) {
  return mark.is_null() ? file : fmt::format("{}:{}:{}", file, mark.line + 1, mark.column + 1);
}

std::string kind_of(const YAML::Node& node) {
  return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : "nothing";
}

// Reads the three layers into one Settings object and collects what is wrong with them.
class Reader {
 public:
  Reader(const LoadOptions& options, Settings& settings) : options_(options), settings_(settings) {
    std::error_code error;
    folder_ =
        options.path.empty() ? fs::current_path(error) : fs::absolute(options.path, error).parent_path();
    for (const PropertyBase* property : settings.all()) names_.emplace_back(property->name());
  }

  Status run() {
    if (!options_.path.empty()) {
      TRY(std::string text, read_file(options_.path));
      read_yaml(text);
    }
    if (options_.use_environment) read_environment();
    for (const std::string& set : options_.sets) read_set(set);
    if (faults.empty()) check_relations();
    return {};
  }

  std::vector<std::string> faults;

 private:
  void unknown(const std::string& message) {
    if (options_.allow_unknown) {
      obs::warn("config", "{}; ignored", message);
    } else {
      faults.push_back(message);
    }
  }

  void read_yaml(const std::string& text) {
    const std::string& file = options_.path;
    try {
      auto documents = YAML::LoadAll(text);
      if (documents.empty()) return;
      if (documents.size() > 1) {
        faults.push_back(fmt::format("{}: expected one document, got {}", place(file, documents[1].Mark()),
                                     documents.size()));
        return;
      }
      if (documents[0].IsNull()) return;
      if (!documents[0].IsMap()) {
        faults.push_back(fmt::format("{}: expected sections with settings, got {}",
                                     place(file, documents[0].Mark()),
                                     documents[0].IsScalar() ? "a single value" : kind_of(documents[0])));
        return;
      }
      read_map(documents[0], "");
    } catch (const YAML::Exception& error) {
      faults.push_back(fmt::format("{}: {}", place(file, error.mark), error.msg));
    }
  }

  // prefix: "" or "experts.".
  void read_map(const YAML::Node& map, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const YAML::Node& key = entry.first;
      const YAML::Node& value = entry.second;
      std::string where = place(options_.path, key.Mark());
      if (!key.IsScalar()) {
        faults.push_back(fmt::format("{}: expected the name of a setting, got {}", where, kind_of(key)));
        continue;
      }
      std::string name = prefix + key.Scalar();
      if (!seen.insert(name).second) {
        faults.push_back(fmt::format("{}: {}: the key appears twice", where, name));
        continue;
      }
      if (PropertyBase* property = settings_.find(name)) {
        if (!prefix.empty() || name.find('.') == std::string::npos) {
          read_value(*property, value, where);
        } else {
          auto dot = name.find('.');
          faults.push_back(fmt::format("{}: {}: write it as the key {} in the section {}", where, name,
                                       name.substr(dot + 1), name.substr(0, dot)));
        }
      } else if (prefix.empty() && is_section(name)) {
        read_section(name, value, where);
      } else {
        unknown(fmt::format("{}: {}: no such setting{}", where, name, did_you_mean(name, names_at(prefix))));
      }
    }
  }

  void read_section(const std::string& name, const YAML::Node& value, const std::string& where) {
    if (value.IsMap()) {
      read_map(value, name + ".");
    } else if (!value.IsNull()) {
      faults.push_back(fmt::format("{}: {}: expected settings below it, got {}", where, name,
                                   value.IsScalar() ? "a single value" : kind_of(value)));
    }
  }

  void read_value(PropertyBase& property, const YAML::Node& value, const std::string& key_place) {
    if (value.IsScalar()) {
      set_value(property, value.Scalar(), place(options_.path, value.Mark()), folder_);
    } else if (value.IsSequence() && property.is_list()) {
      set_items(property, value, key_place);
    } else {
      faults.push_back(fmt::format("{}: {}: expected a single value, got {}{}", key_place, property.name(),
                                   kind_of(value), value.IsNull() ? " (\"\" is the empty value)" : ""));
    }
  }

  void set_items(PropertyBase& property, const YAML::Node& list, const std::string& where) {
    std::vector<std::string> items;
    for (const YAML::Node& item : list) {
      if (!item.IsScalar()) {
        faults.push_back(fmt::format("{}: {}: item {}: expected a single value, got {}", where,
                                     property.name(), items.size() + 1, kind_of(item)));
        return;
      }
      items.push_back(item.Scalar());
    }
    if (Status status = property.parse_items(items); !status.ok())
      faults.push_back(fmt::format("{}: {}: {}", where, property.name(), status.message()));
  }

  void set_value(PropertyBase& property, const std::string& text, const std::string& where,
                 const fs::path& base) {
    std::string value = text;
    if (property.is_path() && !text.empty() && fs::path(text).is_relative()) {
      value = (base / text).lexically_normal().string();
    }
    if (Status status = property.parse(value); !status.ok()) {
      faults.push_back(fmt::format("{}: {}: {}", where, property.name(), status.message()));
    }
  }

  void read_environment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      std::string_view variable(*entry);
      auto equals = variable.find('=');
      if (!variable.starts_with(kEnvironmentPrefix) || equals == std::string_view::npos) continue;
      std::string shown(variable.substr(0, equals));
      std::string name;
      for (std::size_t i = kEnvironmentPrefix.size(); i < equals; ++i) {
        bool separator = variable.substr(i, 2) == "__" && i + 1 < equals;
        name += separator ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(variable[i])));
        if (separator) ++i;
      }
      if (PropertyBase* property = settings_.find(name)) {
        set_value(*property, std::string(variable.substr(equals + 1)), shown, folder_);
      } else {
        unknown(fmt::format("{}: no setting {}{}", shown, name, did_you_mean(name, names_)));
      }
    }
  }

  void read_set(const std::string& set) {
    auto equals = set.find('=');
    std::string name = set.substr(0, equals);
    PropertyBase* property = settings_.find(name);
    const bool hide = property != nullptr && property->is_secret();
    const std::string where = fmt::format("--set {}", hide ? name + "=..." : set);
    if (equals == std::string::npos) {
      faults.push_back(fmt::format("{}: expected PATH=VALUE", where));
    } else if (property == nullptr) {
      unknown(fmt::format("{}: no setting {}{}", where, name, did_you_mean(name, names_)));
    } else {
      read_set_value(*property, set.substr(equals + 1), where);
    }
  }

  void read_set_value(PropertyBase& property, const std::string& text, const std::string& where) {
    std::string value;
    try {
      YAML::Node node = YAML::Load(text);
      if (node.IsSequence() && property.is_list()) return set_items(property, node, where);
      if (!node.IsScalar() && !node.IsNull()) {
        faults.push_back(fmt::format("{}: expected a single value, got {}", where, kind_of(node)));
        return;
      }
      value = node.IsScalar() ? node.Scalar() : "";
    } catch (const YAML::Exception& error) {
      faults.push_back(fmt::format("{}: {}", where, error.msg));
      return;
    }
    std::error_code error;
    fs::path here = fs::current_path(error);
    bool exists_here = !error && fs::exists(here / value, error);
    set_value(property, value, where, exists_here ? here : folder_);
  }

  // What no bound of a single setting can say.
  void check_relations() {
    if (settings_.supervisor_backoff_ms() > settings_.supervisor_backoff_max_ms()) {
      faults.push_back(fmt::format(
          "{}: supervisor.backoff_ms: expected at most supervisor.backoff_max_ms, which is {}, got {}",
          options_.path, settings_.supervisor_backoff_max_ms(), settings_.supervisor_backoff_ms()));
    }
  }

  bool is_section(const std::string& name) const {
    return std::any_of(names_.begin(), names_.end(),
                       [&](const std::string& known) { return known.starts_with(name + "."); });
  }

  // The names that could stand where an unknown one does: whole names inside a section; sections and plain
  // settings at the top.
  std::vector<std::string> names_at(const std::string& prefix) const {
    if (!prefix.empty()) return names_;
    std::set<std::string> top;
    for (const std::string& name : names_) top.insert(name.substr(0, name.find('.')));
    return {top.begin(), top.end()};
  }

  const LoadOptions& options_;
  Settings& settings_;
  fs::path folder_;
  std::vector<std::string> names_;
};

}  // namespace

Result<std::unique_ptr<Settings>> load(const LoadOptions& options) {
  auto settings = std::make_unique<Settings>();
  Reader reader(options, *settings);
  TRY_OK(reader.run());
  if (reader.faults.empty()) return settings;
  if (reader.faults.size() == 1) return fail(Code::kInvalidArgument, "{}", reader.faults[0]);
  return fail(Code::kInvalidArgument, "{} (and {} more: strata config check)", reader.faults[0],
              reader.faults.size() - 1);
}

std::vector<std::string> find_faults(const LoadOptions& options) {
  Settings settings;
  Reader reader(options, settings);
  if (Status status = reader.run(); !status.ok()) return {status.message()};
  return reader.faults;
}

}  // namespace strata::config
