// The reference page, made from the declarations: docs/configuration.md is this text, and a test compares
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "services/config/load.h"

namespace strata::config {

namespace {

constexpr std::string_view kIntroduction =
    R"(# Configuration

One YAML file describes one deployment (`configs/*.yaml`). This page is made from the declarations in
`services/config/settings.h` by `strata config reference`; a test keeps it current.

A value comes from, each over the one before:

1. the default below,
2. the file,
3. the environment: `STRATA__SECTION__NAME`, for example `STRATA__EXPERTS__SLOTS=25%`,
4. the command line: `--set PATH=VALUE`, for example `--set experts.slots=25%`; repeats, the last one counts.

Relative paths are relative to the file's folder; those of `--set` to the working directory if they exist there. Unknown and
duplicate keys are errors that name file, line, column and the nearest known setting (`--allow-unknown` makes unknown ones
warnings). `strata config check --config F` prints every fault, `strata config show --config F` the effective settings.

"Takes effect" says what has to be restarted for a changed value to count; `strata status` compares the file with what runs.
)";

// In a table cell a bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "empty" : fmt::format("`{}`", text); }

std::string environment_name(std::string_view name) {
  std::string out = "STRATA__";
  for (char c : name) {
    if (c == '.') {
      out += "__";
    } else {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace

std::string reference_markdown() {
  Settings settings;
  std::string out(kIntroduction);
  std::string_view section = "-";
  for (const PropertyBase* property : settings.all()) {
    std::string_view name = property->name();
    auto dot = name.find('.');
    std::string_view its_section = dot == std::string_view::npos ? name : name.substr(0, dot);
    if (its_section != section) {
      section = its_section;
      out += fmt::format(
          "\n## {}\n\n| setting | meaning | default | values | takes effect |\n| --- | --- | --- | --- | --- "
          "|\n",
          section);
    }
    std::string values = property->range_text();
    if (auto unit = unit_name(property->meta().unit); !unit.empty()) {
      values += fmt::format("{}{}", values.empty() ? "" : ", ", unit);
    }
    if (values.empty()) values = fmt::format("for example {}", code(property->meta().example));
    out += fmt::format("| `{}`<br>`{}` | {} | {} | {} | {} |\n", name, environment_name(name),
                       cell(property->description()), code(cell(property->default_text())), cell(values),
                       applies_name(property->meta().applies));
  }
  return out;
}

}  // namespace strata::config
