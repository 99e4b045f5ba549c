#pragma once
// The mechanism behind settings.h: a property knows its name, meaning, unit, default and bounds, and how its
// value is read from YAML, from --set PATH=VALUE and from the environment (STRATA__SECTION__NAME).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "services/base/status.h"
#include "services/config/secret.h"

namespace strata::config {

enum class Unit { kNone, kCount, kBytes, kTokens, kExperts, kThreads, kMilliseconds, kMicroseconds, kRatio };
enum class Applies {
  kLive,  // at once by `strata residency`; from the file, when the cache manager starts
  kRestartGateway,
  kRestartGpuWorker,
  kRestartExpertWorkers,
  kRestartCacheManager,
  kRestartAll,
};
std::string_view unit_name(Unit unit);           // "ms", "tokens", ""
std::string_view applies_name(Applies applies);  // "restart of the gateway", ...

struct PropertyMeta {
  Unit unit = Unit::kNone;
  Applies applies = Applies::kRestartAll;
  std::string_view example;
};

// A path; relative ones are relative to the configuration file's folder. Loaded values are absolute.
struct Path {
  std::string value;
  bool empty() const { return value.empty(); }
  const std::string& string() const { return value; }
};

// One of a fixed list of words.
struct Choice {
  std::string value;
  bool operator==(std::string_view word) const { return value == word; }
};

// "auto", "256" or "25%".
struct Amount {
  enum class Kind { kAuto, kNumber, kPercent };
  Kind kind = Kind::kAuto;
  double value = 0;
  static Amount automatic() { return {}; }
  // The number that is meant out of `total`: a percentage rounds to the nearest, a number is capped at total.
  uint64_t of(uint64_t total, uint64_t automatic_value) const;
};

// "auto" or a whole number.
struct Count {
  std::optional<uint32_t> number;  // none: auto
  Count() = default;
  Count(uint32_t value) : number(value) {}  // NOLINT(google-explicit-constructor): a number is a count
  static Count automatic() { return {}; }
};

// "auto", or bytes: "24 GiB", "512MiB", "1048576".
struct Size {
  std::optional<uint64_t> bytes;  // none: auto
  static Size automatic() { return {}; }
  static Size of(uint64_t count) { return {count}; }
};

// Lists: in YAML [a, b] or one item a line, elsewhere [a, b] or a single item. "[]": none.
struct Words {
  std::vector<std::string> list;
};
// Given as secrets or as their hashes, kept and written as hashes.
struct Secrets {
  std::vector<SecretHash> list;
};
template <class T>
inline constexpr bool kIsList = std::is_same_v<T, Words> || std::is_same_v<T, Secrets>;

template <class T>
struct Bounds {
  std::optional<T> min = {}, max = {};    // of a Count: of its number
  std::vector<std::string> choices = {};  // for Choice
  // For what bounds cannot say: "" when the value is right, else what was expected instead.
  std::string (*fault)(const T&) = nullptr;
};

// A fault for Bounds<std::string>: HOST:PORT with a port of 0 to 65535; IPv6 hosts in brackets.
std::string listen_address_fault(const std::string& text);
std::string optional_listen_address_fault(const std::string& text);  // empty is right, too
// A fault for Bounds<Words>: origins as browsers send them, SCHEME://HOST or SCHEME://HOST:PORT.
std::string origins_fault(const Words& origins);

class PropertyBase;

// The list of all properties of a Settings object, in order of declaration.
class PropertySet {
 public:
  PropertySet() = default;
  PropertySet(const PropertySet&) = delete;
  PropertySet& operator=(const PropertySet&) = delete;
  const std::vector<PropertyBase*>& all() const { return properties_; }
  PropertyBase* find(std::string_view name) const;

 private:
  friend class PropertyBase;
  std::vector<PropertyBase*> properties_;
};

class PropertyBase {
 public:
  PropertyBase(PropertySet* set, std::string_view name, std::string_view description, PropertyMeta meta);
  virtual ~PropertyBase() = default;
  std::string_view name() const { return name_; }
  std::string_view description() const { return description_; }
  const PropertyMeta& meta() const { return meta_; }
  // Reads a scalar as YAML wrote it. The error says what was expected, without naming file or line (the
  // loader adds that).
  virtual Status parse(std::string_view text) = 0;
  virtual std::string text() const = 0;  // the value; parse() takes it back
  virtual std::string default_text() const = 0;
  virtual std::string range_text() const = 0;  // "1 to 16", "host or cuda", ""
  virtual bool is_default() const = 0;
  virtual bool is_path() const { return false; }
  virtual bool is_list() const { return false; }
  virtual bool is_secret() const { return false; }  // neither errors nor what is shown may hold its value
  // Of lists: the items as they are written, and the items of a YAML list. Nothing else has any.
  virtual std::vector<std::string> items() const { return {}; }
  virtual Status parse_items(const std::vector<std::string>& items);

 private:
  std::string_view name_, description_;
  PropertyMeta meta_;
};

// T: std::string, Path, Choice, Amount, Count, Size, Words, Secrets, bool, uint32_t, double.
template <class T>
class Property final : public PropertyBase {
 public:
  Property(PropertySet* set, std::string_view name, std::string_view description, PropertyMeta meta,
           T default_value, Bounds<T> bounds = {})
      : PropertyBase(set, name, description, meta),
        value_(default_value),
        default_(default_value),
        bounds_(std::move(bounds)) {}
  const T& operator()() const { return value_; }
  void set(T value) { value_ = std::move(value); }
  const Bounds<T>& bounds() const { return bounds_; }

  Status parse(std::string_view text) override;
  std::string text() const override;
  std::string default_text() const override;
  std::string range_text() const override;
  bool is_default() const override;
  bool is_path() const override;
  bool is_list() const override { return kIsList<T>; }
  bool is_secret() const override { return std::is_same_v<T, Secrets>; }
  std::vector<std::string> items() const override;
  Status parse_items(const std::vector<std::string>& items) override;

 private:
  T value_, default_;
  Bounds<T> bounds_;
};

}  // namespace strata::config
