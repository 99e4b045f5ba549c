// Typed access to metadata: GgufFile::get_*.

#include "services/gguf/gguf_file.h"
#include "services/gguf/gguf_file_impl.h"
#include "services/gguf/integer.h"
#include "services/gguf/printable.h"
#include "services/gguf/value_reader.h"

namespace strata::gguf {
namespace {

std::optional<double> float_value(const Value& value) {
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&value.data)) return static_cast<double>(*number);
  return std::nullopt;
}

template <class T>
std::optional<T> exact_value(const Value& value) {
  const T* held = std::get_if<T>(&value.data);
  return held == nullptr ? std::nullopt : std::optional<T>(*held);
}

Failure wrong(const Lookup& lookup, const std::string& found, const std::string& expected) {
  return fail(Code::kInvalidArgument, "{}: byte {}: key '{}' has {}, expected {}", lookup.path,
              lookup.position, printable(lookup.key), found, expected);
}

Result<const Value*> require(const Lookup& lookup) {
  if (lookup.value != nullptr) return lookup.value;
  return fail(Code::kNotFound, "{}: key '{}' is missing", lookup.path, printable(lookup.key));
}

// `convert` gives nullopt for a value that is not what was asked for.
template <class T, class Convert>
Result<T> get_scalar(const Lookup& lookup, const std::string& expected, Convert convert) {
  TRY(const Value* value, require(lookup));
  const std::optional<T> converted = convert(*value);
  if (!converted) return wrong(lookup, describe_value(*value), expected);
  return *converted;
}

template <class T, class Convert>
Result<std::vector<T>> get_array(const Lookup& lookup, const std::string& expected, Convert convert) {
  TRY(const Value* value, require(lookup));
  const auto* array = std::get_if<std::shared_ptr<const Array>>(&value->data);
  if (array == nullptr) return wrong(lookup, describe_value(*value), "an array of " + expected);
  std::vector<T> elements;
  elements.reserve((*array)->count);
  std::string bad;
  visit_elements(**array, [&](const Value& element) {
    const std::optional<T> converted = convert(element);
    if (!converted) {
      bad = fmt::format("{} as element {}", describe_value(element), elements.size());
      return false;
    }
    elements.push_back(*converted);
    return true;
  });
  if (!bad.empty()) return wrong(lookup, bad, "an array of " + expected);
  return elements;
}

auto unsigned_up_to(uint64_t max) {
  return [max](const Value& value) { return unsigned_value(value, max); };
}

std::string unsigned_expected(uint64_t max) { return fmt::format("an integer from 0 to {}", max); }

constexpr uint64_t kAnyUnsigned = std::numeric_limits<uint64_t>::max();

}  // namespace

Result<uint64_t> GgufFile::get_uint(std::string_view key, uint64_t max) const {
  return get_scalar<uint64_t>(impl_->lookup(key), unsigned_expected(max), unsigned_up_to(max));
}

Result<uint64_t> GgufFile::get_uint_or(std::string_view key, uint64_t fallback, uint64_t max) const {
  return find(key) == nullptr ? Result<uint64_t>(fallback) : get_uint(key, max);
}

Result<int64_t> GgufFile::get_int(std::string_view key) const {
  return get_scalar<int64_t>(impl_->lookup(key), "an integer below 2^63", signed_value);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  return get_scalar<double>(impl_->lookup(key), "a number", float_value);
}

Result<double> GgufFile::get_float_or(std::string_view key, double fallback) const {
  return find(key) == nullptr ? Result<double>(fallback) : get_float(key);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  if (find(key) == nullptr) return fallback;
  return get_scalar<bool>(impl_->lookup(key), "a bool", exact_value<bool>);
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  return get_scalar<std::string_view>(impl_->lookup(key), "a string", exact_value<std::string_view>);
}

Result<std::vector<int64_t>> GgufFile::get_int_array(std::string_view key) const {
  return get_array<int64_t>(impl_->lookup(key), "integers below 2^63", signed_value);
}

Result<std::vector<uint64_t>> GgufFile::get_uint_array(std::string_view key) const {
  return get_array<uint64_t>(impl_->lookup(key), "integers from 0", unsigned_up_to(kAnyUnsigned));
}

Result<std::vector<bool>> GgufFile::get_bool_array(std::string_view key) const {
  return get_array<bool>(impl_->lookup(key), "bools", exact_value<bool>);
}

Result<std::vector<std::string_view>> GgufFile::get_string_array(std::string_view key) const {
  return get_array<std::string_view>(impl_->lookup(key), "strings", exact_value<std::string_view>);
}

}  // namespace strata::gguf
