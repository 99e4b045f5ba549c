// Objects and arrays of a schema.
#include <algorithm>
#include <boost/json/array.hpp>
#include <map>
#include <set>

#include "services/grammar/limits.h"
#include "services/grammar/schema_compiler.h"
#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

using boost::json::object;
using boost::json::value;

std::string_view text(boost::json::string_view view) { return {view.data(), view.size()}; }

// Names by their characters, to find texts that are none of them.
struct NameTree {
  std::map<char32_t, NameTree> next;
  bool ends = false;

  void add(std::string_view name) {
    NameTree* node = this;
    while (!name.empty()) {
      const tokenizer::Utf8Step step = tokenizer::utf8_step(name);
      node = &node->next[step.value];
      name.remove_prefix(step.bytes);
    }
    node->ends = true;
  }
};

// Texts that begin here and do not spell out one of the names, without a level of recursion per character.
class NamesLeftOut {
 public:
  explicit NamesLeftOut(JsonRules& json) : json_(json), rules_(json.rules()) {}

  NodeId rest(const NameTree& tree) {
    std::vector<std::pair<RuleId, const NameTree*>> work;
    const RuleId first = rules_.add_rule("other-name");
    work.emplace_back(first, &tree);
    const NodeId any = rules_.repeat(json_.written(CodePoints::all()), 0, kUnbounded);
    while (!work.empty()) {
      const auto [rule, node] = work.back();
      work.pop_back();
      std::vector<NodeId> choices;
      CodePoints others = CodePoints::all();
      for (const auto& [character, child] : node->next) {
        const RuleId next = rules_.add_rule("other-name");
        work.emplace_back(next, &child);
        const CodePoints one({{character, character}});
        choices.push_back(rules_.sequence({json_.written(one), rules_.reference(next)}));
        others = others.minus(one);
      }
      choices.push_back(rules_.sequence({json_.written(others), any}));
      if (!node->ends) choices.push_back(rules_.empty());
      rules_.define(rule, rules_.choice(std::move(choices)));
    }
    return rules_.reference(first);
  }

 private:
  JsonRules& json_;
  Rules& rules_;
};

}  // namespace

Result<NodeId> SchemaCompiler::object_value(const object& schema, const std::string& at) {
  TRY(const std::vector<Property> properties, properties_of(schema, at));
  // Left out it means "any"; beside named properties that is never meant, and a model would fill it.
  const value* additional = schema.if_contains("additionalProperties");
  const value none(false), any(true);
  if (additional == nullptr) additional = properties.empty() && !schema.contains("properties") ? &any : &none;
  const bool more = !additional->is_bool() || additional->get_bool();
  TRY_OK(check_property_counts(schema, properties, more, at));
  if (!more) {
    return rules_.sequence({json_.open('{'), members(properties, std::nullopt), json_.close('}')});
  }
  if (properties.empty() && additional->is_bool()) return json_.object();
  TRY(const NodeId content, this->schema(*additional, at + "/additionalProperties"));
  const NodeId name = properties.empty() ? json_.string() : name_other_than(properties);
  return rules_.sequence(
      {json_.open('{'), members(properties, json_.member_of(name, content)), json_.close('}')});
}

Result<std::vector<SchemaCompiler::Property>> SchemaCompiler::properties_of(const object& schema,
                                                                            const std::string& at) {
  std::vector<Property> properties;
  std::set<std::string, std::less<>> required;
  std::vector<std::string> required_in_order;
  if (const value* list = schema.if_contains("required")) {
    if (!list->is_array()) return error(at, "\"required\" must be a list of names");
    for (const value& name : list->get_array()) {
      if (!name.is_string()) return error(at, "\"required\" must be a list of names");
      if (required.emplace(text(name.get_string())).second)
        required_in_order.emplace_back(text(name.get_string()));
    }
  }
  if (const value* list = schema.if_contains("properties")) {
    if (!list->is_object()) return error(at, "\"properties\" must be an object");
    for (const auto& member : list->get_object()) {
      const std::string_view name = text(member.key());
      TRY(const NodeId content, this->schema(member.value(), at + "/properties/" + pointer_token(name)));
      properties.push_back({std::string(name), content, required.contains(name)});
      required.erase(std::string(name));
    }
  }
  // Required names that are not described come behind the others.
  const value* additional = schema.if_contains("additionalProperties");
  for (const std::string& name : required_in_order) {
    if (!required.contains(name)) continue;
    if (additional != nullptr && additional->is_bool() && !additional->get_bool()) {
      return error(at, "\"required\" names \"{}\", which \"additionalProperties\" forbids", name);
    }
    TRY(const NodeId content, additional == nullptr
                                  ? Result<NodeId>(json_.value())
                                  : this->schema(*additional, at + "/additionalProperties"));
    properties.push_back({name, content, true});
  }
  return properties;
}

// The number of properties is not counted; bounds that hold anyway are fine.
Status SchemaCompiler::check_property_counts(const object& schema, const std::vector<Property>& properties,
                                             bool more, const std::string& at) const {
  const auto required =
      std::count_if(properties.begin(), properties.end(), [](const Property& p) { return p.required; });
  TRY(const std::optional<uint64_t> min, count(schema, "minProperties", at));
  TRY(const std::optional<uint64_t> max, count(schema, "maxProperties", at));
  if (min && *min > static_cast<uint64_t>(required)) return error(at, "\"minProperties\" is not supported");
  if (max && (more || *max < properties.size())) return error(at, "\"maxProperties\" is not supported");
  return {};
}

// The properties in their order, those that are not required or not; then any number of `more`.
NodeId SchemaCompiler::members(const std::vector<Property>& properties, std::optional<NodeId> more) {
  const auto member = [&](const Property& property) { return json_.member(property.name, property.value); };
  const auto behind_another = [&](const Property& property) {
    const NodeId node = rules_.sequence({json_.comma(), member(property)});
    return property.required ? node : rules_.optional(node);
  };
  // What may come behind property i - 1 when something is there already. It is made for each property that
  // can be the first, and is a rule so that it is there once.
  const auto first_required =
      std::find_if(properties.begin(), properties.end(), [](const Property& p) { return p.required; });
  const auto firsts = static_cast<std::size_t>(first_required - properties.begin()) +
                      (first_required == properties.end() ? 0 : 1);
  std::vector<NodeId> tail;
  for (std::size_t i = firsts; i < properties.size(); ++i) tail.push_back(behind_another(properties[i]));
  if (more) tail.push_back(rules_.repeat(rules_.sequence({json_.comma(), *more}), 0, kUnbounded));
  NodeId rest = rules_.sequence(std::move(tail));
  std::vector<NodeId> choices;
  for (std::size_t i = firsts; i-- > 0;) {
    if (firsts > 1) rest = rules_.reference(rules_.define_new("rest", rest));
    choices.push_back(rules_.sequence({member(properties[i]), rest}));
    if (i > 0) rest = rules_.sequence({behind_another(properties[i]), rest});
  }
  if (first_required == properties.end()) {
    if (more) choices.push_back(json_.list(*more, *more, 0, kUnbounded));
    choices.push_back(rules_.empty());
  }
  return rules_.choice(std::move(choices));
}

NodeId SchemaCompiler::name_other_than(const std::vector<Property>& properties) {
  NameTree tree;
  for (const Property& property : properties) tree.add(property.name);
  // A rule of its own: it ends in a quote that many callers share.
  return rules_.reference(rules_.define_new("other", json_.quoted(NamesLeftOut(json_).rest(tree))));
}

Result<NodeId> SchemaCompiler::array_value(const object& schema, const std::string& at) {
  if (const value* unique = schema.if_contains("uniqueItems"); unique != nullptr && *unique != false) {
    return error(at, "\"uniqueItems\" is not supported");
  }
  TRY(const std::optional<uint64_t> min_items, count(schema, "minItems", at));
  TRY(const std::optional<uint64_t> max_items, count(schema, "maxItems", at));
  // Older drafts: a list in "items" are the first ones, "additionalItems" the others.
  const value* items = schema.if_contains("items");
  const value* first = schema.if_contains("prefixItems");
  const bool old = items != nullptr && items->is_array();
  if (old && first != nullptr) return error(at, "\"items\" must be a schema beside \"prefixItems\"");
  if (old) first = items;
  if (old) items = schema.if_contains("additionalItems");
  if (first != nullptr && !first->is_array()) return error(at, "\"prefixItems\" must be a list of schemas");

  std::vector<NodeId> prefix;
  for (std::size_t i = 0; first != nullptr && i < first->get_array().size(); ++i) {
    TRY(const NodeId item,
        this->schema(first->get_array()[i], fmt::format("{}/{}/{}", at, old ? "items" : "prefixItems", i)));
    prefix.push_back(item);
  }
  // Left out it means "any"; behind described items that is not meant.
  const bool others = items == nullptr ? prefix.empty() : !items->is_bool() || items->get_bool();
  NodeId other = json_.value();
  if (others && items != nullptr) {
    TRY(other, this->schema(*items, at + (old ? "/additionalItems" : "/items")));
  }
  const uint64_t min = min_items.value_or(0);
  const uint64_t most = others ? kUnbounded : prefix.size();
  // More than a million items are more than any answer holds.
  const uint64_t max =
      std::min(most, max_items && *max_items <= kRepeatMax ? *max_items : uint64_t{kUnbounded});
  if (min > kRepeatMax) return error(at, "\"minItems\" above {} is not supported", kRepeatMax);
  if (min > max) return error(at, "\"minItems\" asks for more items than there can be");

  // From the end: what comes behind item i - 1.
  const auto at_least = [&](std::size_t items_so_far) {
    return min > items_so_far ? static_cast<uint32_t>(min - items_so_far) : 0;
  };
  const std::size_t described = std::min<uint64_t>(prefix.size(), max);
  const auto repeats_after = [&](std::size_t so_far) {
    const uint32_t low = at_least(so_far);
    const uint32_t high = max == kUnbounded ? kUnbounded : static_cast<uint32_t>(max - so_far);
    return rules_.repeat(rules_.sequence({json_.comma(), other}), low, high);
  };
  if (max == 0) return rules_.sequence({json_.open('['), json_.close(']')});
  NodeId rest =
      described == max || !others ? rules_.empty() : repeats_after(std::max<std::size_t>(described, 1));
  if (described == 0) {
    rest = rules_.sequence({other, rest});
  }
  for (std::size_t i = described; i-- > 0;) {
    std::vector<NodeId> parts;
    if (i > 0) parts.push_back(json_.comma());
    parts.push_back(prefix[i]);
    parts.push_back(rest);
    rest = rules_.sequence(std::move(parts));
    if (i > 0 && at_least(i) == 0) rest = rules_.optional(rest);
  }
  if (min == 0) rest = rules_.optional(rest);
  return rules_.sequence({json_.open('['), rest, json_.close(']')});
}

}  // namespace strata::grammar
