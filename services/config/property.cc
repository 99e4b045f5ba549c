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

// "[a, b]" -> a, b; "a" -> a; "[]" and "" -> nothing.
std::vector<std::string> split_items(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string> items;
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    // An empty text between commas is an item, to be refused; [ ] holds none.
    if (!item.empty() || comma != std::string_view::npos || !items.empty()) items.emplace_back(item);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return items;
}

Result<Words> read_list(const std::vector<std::string>& items, const Bounds<Words>& bounds) {
  Words words{items};
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].empty()) return fail(Code::kInvalidArgument, "item {} is empty", i + 1);
  }
  if (bounds.fault != nullptr) {
    if (std::string fault = bounds.fault(words); !fault.empty())
      return fail(Code::kInvalidArgument, "{}", fault);
  }
  return words;
}

Result<Secrets> read_list(const std::vector<std::string>& items, const Bounds<Secrets>&) {
  Secrets secrets;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto secret = read_secret(items[i]);
    if (!secret) return fail(Code::kInvalidArgument, "item {}: {}", i + 1, secret.error().message());
    secrets.list.push_back(*secret);
  }
  return secrets;
}

template <class T>
  requires kIsList<T>
Result<T> read(std::string_view text, const Bounds<T>& bounds) {
  return read_list(split_items(text), bounds);
}

std::vector<std::string> written_items(const Words& words) { return words.list; }
std::vector<std::string> written_items(const Secrets& secrets) {
  std::vector<std::string> items;
  for (const SecretHash& hash : secrets.list) items.push_back(hash.text());
  return items;
}

template <class T>
  requires kIsList<T>
std::string write(const T& value) {
  return fmt::format("[{}]", fmt::join(written_items(value), ", "));
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

std::string origins_fault(const Words& origins) {
  for (const std::string& origin : origins.list) {
    const auto mark = origin.find("://");
    const std::string_view scheme = std::string_view(origin).substr(0, mark);
    const std::string_view rest =
        mark == std::string::npos ? std::string_view() : std::string_view(origin).substr(mark + 3);
    auto in_scheme = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    auto in_host = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             std::string_view("-._:[]").find(c) != std::string_view::npos;
    };
    if (scheme.empty() || rest.empty() || !std::ranges::all_of(scheme, in_scheme) ||
        !std::ranges::all_of(rest, in_host)) {
      return fmt::format(
          "expected origins such as https://app.example or http://localhost:3000, in lower case and without "
          "a path, got {}",
          quoted(origin));
    }
    // A browser leaves the usual port out, so this would never match.
    if ((scheme == "https" && rest.ends_with(":443")) || (scheme == "http" && rest.ends_with(":80")))
      return fmt::format("leave the usual port out, as browsers do: {}", quoted(origin));
  }
  return "";
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

Status PropertyBase::parse_items(const std::vector<std::string>&) {
  return fail(Code::kInvalidArgument, "expected a single value, got a list");
}

template <class T>
std::vector<std::string> Property<T>::items() const {
  if constexpr (kIsList<T>) return written_items(value_);
  return {};
}

template <class T>
Status Property<T>::parse_items(const std::vector<std::string>& items) {
  if constexpr (kIsList<T>) {
    TRY(value_, read_list(items, bounds_));
    return {};
  } else {
    return PropertyBase::parse_items(items);
  }
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
  if constexpr (std::is_same_v<T, Words>) return "a list";
  if constexpr (std::is_same_v<T, Secrets>)
    return "a list of keys, or of `sha256:` and 64 hexadecimal digits";
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
template class Property<Words>;
template class Property<Secrets>;
template class Property<bool>;
template class Property<uint32_t>;
template class Property<double>;

}  // namespace strata::config
