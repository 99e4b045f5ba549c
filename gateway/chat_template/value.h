#pragma once
// The values of the template language. They follow Python, whose objects templates are written for: integers
// are exact (128 bits here), dictionaries keep insertion order, a generator can be walked once.
//
// Strings are shared and immutable. Everything that can hold other values is owned by the Heap of the
// rendering and lives until its end, so values may refer to each other in circles.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "gateway/chat_template/budget.h"
#include "services/tokenizer/marked_text.h"

namespace strata::chat_template {

using tokenizer::MarkedText;
using tokenizer::Origin;
using Int = __int128;
using Text = std::shared_ptr<const MarkedText>;

inline Origin combine(Origin a, Origin b) { return a == Origin::kRequest ? a : b; }

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Sequence;
struct Dict;
struct Namespace;
struct Loop;
struct Callable;

struct None {};
// A name, attribute or element that does not exist. Printing and iterating give nothing; most else is an
// error, this one.
struct Undefined {
  std::shared_ptr<const std::string> reason;  // "'x' is undefined"
};

struct Value {
  std::variant<Undefined, None, bool, Int, double, Text, Sequence*, Dict*, Namespace*, Loop*, Callable*> data;
  Origin origin = Origin::kTemplate;  // of everything but strings, which know it by the byte
  bool markup = false;  // a string that `safe` or `escape` gave: joining it with `+` escapes the other side

  static Value undefined(std::string reason) {
    return {Undefined{std::make_shared<const std::string>(std::move(reason))}};
  }
  static Value none() { return {None{}}; }
  static Value boolean(bool value, Origin origin = Origin::kTemplate) { return {value, origin}; }
  static Value integer(Int value, Origin origin = Origin::kTemplate) { return {value, origin}; }
  static Value number(double value, Origin origin = Origin::kTemplate) { return {value, origin}; }
  static Value string(MarkedText text, bool is_markup = false) {
    return {std::make_shared<const MarkedText>(std::move(text)), Origin::kTemplate, is_markup};
  }
  static Value literal(std::string_view text) { return string(MarkedText(text, Origin::kTemplate)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data); }
  bool is_none() const { return std::holds_alternative<None>(data); }
  bool is_string() const { return std::holds_alternative<Text>(data); }
  bool is_number() const;   // booleans included, as in Python
  bool is_integer() const;  // booleans included
  template <class T>
  T* as() const {  // Sequence, Dict, Namespace, Loop, Callable; nullptr: something else
    auto* const* pointer = std::get_if<T*>(&data);
    return pointer == nullptr ? nullptr : *pointer;
  }

  // Of a string / of any number.
  const MarkedText& text() const { return *std::get<Text>(data); }
  std::string_view view() const { return text().text(); }
  Int to_int() const;
  double to_double() const;
};

struct Sequence : Object {
  enum class Kind : unsigned char {
    kList,
    kTuple,
    kGenerator,  // what map() or reverse give: true, without a length, empty after one walk
  };
  Kind kind = Kind::kList;
  std::vector<Value> items;
};

struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;  // nullptr: absent. Raises for unhashable keys.
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);

 private:
  std::unordered_map<std::string, std::size_t> index_;
};

struct Namespace : Object {
  Dict attributes;
};

struct Loop : Object {
  std::vector<Value> items;
  std::size_t index = 0;
  bool changed_known = false;
  std::vector<Value> changed_values;  // what changed() saw last
};

// Everything that a rendering makes and that can hold values.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}

  template <class T, class... Args>
  T* make(Args&&... args) {
    budget_.step(kStepsPerObject);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* pointer = object.get();
    objects_.push_back(std::move(object));
    return pointer;
  }
  Value sequence(Sequence::Kind kind, std::vector<Value> items, Origin origin = Origin::kTemplate);
  Value list(std::vector<Value> items) { return sequence(Sequence::Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Sequence::Kind::kTuple, std::move(items)); }
  Value generator(std::vector<Value> items) { return sequence(Sequence::Kind::kGenerator, std::move(items)); }

 private:
  Budget& budget_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Python's name of the type, for messages.
std::string_view type_name(const Value& value);
bool truthy(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
// a < b. Raises for types that have no order.
bool less(Budget& budget, const Value& a, const Value& b);

}  // namespace strata::chat_template
