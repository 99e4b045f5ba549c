#include "services/config/property.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "services/base/check.h"
#include "services/config/nearest.h"

namespace strata::config {

namespace {

// The whole text as a number; nullopt for anything else: signs where there are none, blanks, trailing junk,
// overflow.
template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What a value of a wrong kind looked like; long ones are cut.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 60;
  return text.size() <= kShown ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, kShown));
}

std::string choice_list(const std::vector<std::string>& choices) {
  std::string list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    list += i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ";
    list += choices[i];
  }
  return list;
}

template <class T>
constexpr std::string_view kind_name() {
  if constexpr (std::is_same_v<T, uint32_t>) return "a whole number";
  return "a number";
}

template <class T>
std::string number_range(const Bounds<T>& bounds) {
  if (bounds.min && bounds.max) return fmt::format("{} to {}", *bounds.min, *bounds.max);
  if (bounds.min) return fmt::format("at least {}", *bounds.min);
  if (bounds.max) return fmt::format("at most {}", *bounds.max);
  return "";
}

// One pair of functions per type: read a text within bounds, and write it back.

template <class T>
  requires std::is_arithmetic_v<T> && (!std::is_same_v<T, bool>)
Result<T> read(std::string_view text, const Bounds<T>& bounds) {
  auto value = to_number<T>(text);
  std::string range = number_range(bounds);
  bool right = value && !(bounds.min && *value < *bounds.min) && !(bounds.max && *value > *bounds.max);
  if constexpr (std::is_floating_point_v<T>) right = right && std::isfinite(*value);
  if (right) return *value;
  return fail(Code::kInvalidArgument, "expected {}{}{}, got {}", kind_name<T>(), range.empty() ? "" : ", ",
              range, quoted(text));
}

Result<bool> read(std::string_view text, const Bounds<bool>&) {
  if (text == "true") return true;
  if (text == "false") return false;
  return fail(Code::kInvalidArgument, "expected true or false, got {}", quoted(text));
}

Status check_text(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return fail(Code::kInvalidArgument, "holds a zero byte");
  return {};
}

Result<std::string> read(std::string_view text, const Bounds<std::string>& bounds) {
  TRY_OK(check_text(text));
  std::string value(text);
  if (bounds.fault != nullptr) {
    if (std::string fault = bounds.fault(value); !fault.empty())
      return fail(Code::kInvalidArgument, "{}", fault);
  }
  return value;
}

Result<Path> read(std::string_view text, const Bounds<Path>&) {
  TRY_OK(check_text(text));
  return Path{std::string(text)};
}

Result<Choice> read(std::string_view text, const Bounds<Choice>& bounds) {
  for (const std::string& choice : bounds.choices) {
    if (text == choice) return Choice{choice};
  }
  return fail(Code::kInvalidArgument, "expected {}, got {}{}", choice_list(bounds.choices), quoted(text),
              did_you_mean(text, bounds.choices));
}

Result<Amount> read(std::string_view text, const Bounds<Amount>&) {
  if (text == "auto") return Amount::automatic();
  if (text.ends_with('%')) {
    auto percent = to_number<double>(text.substr(0, text.size() - 1));
    if (percent && *percent >= 0 && *percent <= 100) return Amount{Amount::Kind::kPercent, *percent};
  } else if (auto number = to_number<uint32_t>(text)) {
    return Amount{Amount::Kind::kNumber, static_cast<double>(*number)};
  }
  return fail(Code::kInvalidArgument,
              "expected auto, a whole number, or a percentage from 0% to 100%, got {}", quoted(text));
}

// Bounds of the number behind a count.
Bounds<uint32_t> number_bounds(const Bounds<Count>& bounds) {
  Bounds<uint32_t> numbers;
  if (bounds.min) numbers.min = bounds.min->number;
  if (bounds.max) numbers.max = bounds.max->number;
  return numbers;
}

Result<Count> read(std::string_view text, const Bounds<Count>& bounds) {
  if (text == "auto") return Count::automatic();
  auto number = read(text, number_bounds(bounds));
  if (number) return Count(*number);
  return fail(Code::kInvalidArgument, "expected auto or {}, got {}", number_range(number_bounds(bounds)),
              quoted(text));
}

struct SizeUnit {
  std::string_view name;
  uint64_t bytes;
};
constexpr SizeUnit kSizeUnits[] = {
    {"GiB", uint64_t{1} << 30}, {"MiB", uint64_t{1} << 20}, {"KiB", uint64_t{1} << 10}};
constexpr uint64_t kSizeMax = uint64_t{1} << 50;

Result<Size> read(std::string_view text, const Bounds<Size>&) {
  if (text == "auto") return Size::automatic();
  uint64_t unit = 1;
  std::string_view number = text;
  for (const SizeUnit& each : kSizeUnits) {
    if (!text.ends_with(each.name)) continue;
    unit = each.bytes;
    number.remove_suffix(each.name.size());
    if (number.ends_with(' ')) number.remove_suffix(1);
  }
  const auto value = to_number<double>(number);
  const bool right =
      value && *value >= 0 && *value * static_cast<double>(unit) <= static_cast<double>(kSizeMax);
  if (right) return Size::of(static_cast<uint64_t>(std::llround(*value * static_cast<double>(unit))));
  return fail(Code::kInvalidArgument, "expected auto or a size such as 24GiB or 512MiB, got {}",
              quoted(text));
}

std::string write(uint32_t value) { return fmt::format("{}", value); }
std::string write(double value) { return fmt::format("{}", value); }
std::string write(bool value) { return value ? "true" : "false"; }
std::string write(const std::string& value) { return value; }
std::string write(const Path& value) { return value.value; }
std::string write(const Choice& value) { return value.value; }
std::string write(const Count& value) { return value.number ? write(*value.number) : "auto"; }
std::string write(const Size& value) {
  if (!value.bytes) return "auto";
  for (const SizeUnit& unit : kSizeUnits) {
    if (*value.bytes > 0 && *value.bytes % unit.bytes == 0)
      return fmt::format("{}{}", *value.bytes / unit.bytes, unit.name);
  }
  return fmt::format("{}", *value.bytes);
}
std::string write(const Amount& value) {
  switch (value.kind) {
    case Amount::Kind::kNumber:
      return fmt::format("{}", static_cast<uint64_t>(value.value));
    case Amount::Kind::kPercent:
      return fmt::format("{}%", value.value);
    case Amount::Kind::kAuto:
      break;
  }
  return "auto";
}

}  // namespace

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::kNone:
      return "";
    case Unit::kCount:
      return "";
    case Unit::kBytes:
      return "bytes";
    case Unit::kTokens:
      return "tokens";
    case Unit::kExperts:
      return "experts";
    case Unit::kThreads:
      return "threads";
    case Unit::kMilliseconds:
      return "ms";
    case Unit::kMicroseconds:
      return "us";
    case Unit::kRatio:
      return "ratio";
  }
  return "";
}

std::string_view applies_name(Applies applies) {
  switch (applies) {
    case Applies::kLive:
      return "live (strata residency), or restart of the cache manager";
    case Applies::kRestartGateway:
      return "restart of the gateway";
    case Applies::kRestartGpuWorker:
      return "restart of the gpu-worker";
    case Applies::kRestartExpertWorkers:
      return "restart of the expert workers";
    case Applies::kRestartCacheManager:
      return "restart of the cache manager";
    case Applies::kRestartAll:
      return "restart of the cluster";
  }
  return "";
}

uint64_t Amount::of(uint64_t total, uint64_t automatic_value) const {
  switch (kind) {
    case Kind::kNumber:
      return value >= static_cast<double>(total) ? total : static_cast<uint64_t>(value);
    case Kind::kPercent:
      return static_cast<uint64_t>(std::llround(static_cast<double>(total) * value / 100));
    case Kind::kAuto:
      break;
  }
  return automatic_value;
}

std::string listen_address_fault(const std::string& text) {
  auto colon = text.rfind(':');
  bool right = colon != std::string::npos && colon > 0 && text.find(' ') == std::string::npos;
  if (right) {
    std::string_view host = std::string_view(text).substr(0, colon);
    bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
    right = bracketed || host.find_first_of("[]:") == std::string_view::npos;
    right = right && to_number<uint16_t>(std::string_view(text).substr(colon + 1));
  }
  return right ? ""
               : fmt::format("expected HOST:PORT such as 127.0.0.1:8080 or [::1]:0, got {}", quoted(text));
}

std::string optional_listen_address_fault(const std::string& text) {
  return text.empty() ? "" : listen_address_fault(text);
}

PropertyBase* PropertySet::find(std::string_view name) const {
  for (PropertyBase* property : properties_) {
    if (property->name() == name) return property;
  }
  return nullptr;
}

PropertyBase::PropertyBase(PropertySet* set, std::string_view name, std::string_view description,
                           PropertyMeta meta)
    : name_(name), description_(description), meta_(meta) {
  CHECK(set->find(name) == nullptr, "setting {} is declared twice", name);
  CHECK(std::count(name.begin(), name.end(), '.') <= 1, "{}: one section at most", name);
  set->properties_.push_back(this);
}

template <class T>
Status Property<T>::parse(std::string_view text) {
  TRY(value_, read(text, bounds_));
  return {};
}

template <class T>
std::string Property<T>::text() const {
  return write(value_);
}

template <class T>
std::string Property<T>::default_text() const {
  return write(default_);
}

template <class T>
std::string Property<T>::range_text() const {
  if constexpr (std::is_same_v<T, uint32_t> || std::is_same_v<T, double>) return number_range(bounds_);
  if constexpr (std::is_same_v<T, Choice>) return choice_list(bounds_.choices);
  if constexpr (std::is_same_v<T, Amount>) return "auto, a whole number, or 0% to 100%";
  if constexpr (std::is_same_v<T, Count>) return "auto, or " + number_range(number_bounds(bounds_));
  if constexpr (std::is_same_v<T, Size>) return "auto, or a size such as 24GiB, 512MiB or 4096";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  return "";
}

template <class T>
bool Property<T>::is_default() const {
  return text() == default_text();
}

template <class T>
bool Property<T>::is_path() const {
  return std::is_same_v<T, Path>;
}

template class Property<std::string>;
template class Property<Path>;
template class Property<Choice>;
template class Property<Amount>;
template class Property<Count>;
template class Property<Size>;
template class Property<bool>;
template class Property<uint32_t>;
template class Property<double>;

}  // namespace strata::config
