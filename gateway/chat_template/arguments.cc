#include "gateway/chat_template/arguments.h"

#include <algorithm>
#include <climits>

namespace strata::chat_template {

Parameters::Parameters(std::string_view function, Arguments arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    raise("{}() takes at most {} arguments ({} given)", function, names_.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) raise("{}() got an unexpected argument '{}'", function, name);
    auto& slot = values_[static_cast<std::size_t>(at - names_.begin())];
    if (slot) raise("{}() got the argument '{}' twice", function, name);
    slot = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!has(i)) raise("{}() needs the argument '{}'", function, names_[i]);
  }
}

const MarkedText& Parameters::text(std::size_t i) const {
  if (!value(i).is_string())
    raise("{}(): '{}' must be a string, not {}", function_, names_[i], type_name(value(i)));
  return value(i).text();
}

MarkedText Parameters::text_or(std::size_t i, std::string_view fallback) const {
  return has(i) ? text(i) : MarkedText(fallback, Origin::kTemplate);
}

std::optional<MarkedText> Parameters::optional_text(std::size_t i) const {
  if (!has(i) || value(i).is_none()) return std::nullopt;
  return text(i);
}

long Parameters::integer_or(std::size_t i, long fallback) const {
  if (!has(i)) return fallback;
  if (!value(i).is_integer())
    raise("{}(): '{}' must be an integer, not {}", function_, names_[i], type_name(value(i)));
  return static_cast<long>(std::clamp<Int>(value(i).to_int(), LONG_MIN, LONG_MAX));
}

}  // namespace strata::chat_template
