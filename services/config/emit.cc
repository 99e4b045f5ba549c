// Settings as YAML text.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "services/config/load.h"

namespace strata::config {

namespace {

constexpr std::size_t kCommentWidth = 100;

bool plain(std::string_view text) {
  auto letter_or_digit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (text.empty() || text.back() == ':' || text == "null" || text == "Null" || text == "NULL") return false;
  if (!letter_or_digit(text.front()) && text.front() != '/' && text.front() != '.') return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return letter_or_digit(c) || std::string_view("._/%+-:").find(c) != std::string_view::npos;
  });
}

// A scalar that YAML reads back as the same text.
std::string scalar(std::string_view text) {
  if (plain(text)) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void append_comment(std::string& out, std::string_view indent, std::string_view text) {
  while (!text.empty()) {
    std::size_t length = text.size();
    if (length > kCommentWidth) {
      length = text.rfind(' ', kCommentWidth);
      if (length == std::string_view::npos) length = text.size();
    }
    out += fmt::format("{}# {}\n", indent, text.substr(0, length));
    text.remove_prefix(std::min(text.size(), length + 1));
  }
}

std::string value_of(const PropertyBase& property) {
  if (!property.is_list()) return scalar(property.text());
  std::vector<std::string> items = property.items();
  for (std::string& item : items) item = scalar(item);
  return fmt::format("[{}]", fmt::join(items, ", "));
}

struct Style {
  bool comments = false;
  SecretsShown secrets = SecretsShown::kHashes;
};

void append_property(std::string& out, const PropertyBase& property, std::string_view key,
                     std::string_view indent, Style style) {
  if (style.comments) {
    append_comment(out, indent, property.description());
    std::string facts = fmt::format(
        "default: {}", property.is_list() ? property.default_text() : scalar(property.default_text()));
    if (std::string range = property.range_text(); !range.empty()) facts += fmt::format("; {}", range);
    if (auto unit = unit_name(property.meta().unit); !unit.empty()) facts += fmt::format("; in {}", unit);
    facts += fmt::format("; takes effect: {}", applies_name(property.meta().applies));
    append_comment(out, indent, facts);
  }
  if (property.is_secret() && style.secrets == SecretsShown::kHidden && !property.is_default()) {
    out += fmt::format("{}# {}: {} given, not shown\n", indent, key, property.items().size());
    return;
  }
  out += fmt::format("{}{}: {}\n", indent, key, value_of(property));
}

}  // namespace

std::string to_yaml(const Settings& settings, bool comments, SecretsShown secrets) {
  const Style style{.comments = comments, .secrets = secrets};
  std::string out;
  std::string_view section;
  for (const PropertyBase* property : settings.all()) {
    std::string_view name = property->name();
    auto dot = name.find('.');
    std::string_view its_section = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
    if (its_section != section) {
      if (comments && !out.empty()) out += '\n';
      if (!its_section.empty()) out += fmt::format("{}:\n", its_section);
      section = its_section;
    }
    if (its_section.empty()) {
      append_property(out, *property, name, "", style);
    } else {
      append_property(out, *property, name.substr(dot + 1), "  ", style);
    }
  }
  return out;
}

std::string config_hash(const Settings& settings) {
  std::string text = to_yaml(settings, false);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace strata::config
