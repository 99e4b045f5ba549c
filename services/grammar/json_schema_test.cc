#include "services/grammar/json_schema.h"

#include <gtest/gtest.h>

#include "services/grammar/limits.h"
#include "services/grammar/schema_checker.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

struct Example {
  std::string_view schema;
  std::vector<std::string_view> generated;
  // Not generated; those marked with a leading "~" would be accepted by the schema all the same.
  std::vector<std::string_view> other;
};

void check(const Example& example) {
  const auto rules = rules_of_schema(example.schema);
  ASSERT_TRUE(rules.has_value()) << example.schema << ": " << rules.error().message();
  const auto grammar = compiled(*rules);
  const auto again = compiled(rules->to_gbnf().value());
  const boost::json::value schema = boost::json::parse(example.schema);
  const SchemaChecker checker(schema);
  for (const std::string_view text : example.generated) {
    EXPECT_TRUE(matches(grammar, text)) << example.schema << "\nshould generate " << text;
    EXPECT_TRUE(matches(again, text)) << example.schema << "\nas text, should generate " << text;
    EXPECT_TRUE(checker.accepts(boost::json::parse(text)))
        << example.schema << "\nthe test is wrong about " << text;
  }
  for (std::string_view text : example.other) {
    const bool narrower = text.starts_with('~');
    if (narrower) text.remove_prefix(1);
    EXPECT_FALSE(matches(grammar, text)) << example.schema << "\nshould not generate " << text;
    boost::json::error_code code;
    const boost::json::value parsed = boost::json::parse(text, code);
    EXPECT_EQ(!code && checker.accepts(parsed), narrower)
        << example.schema << "\nthe test is wrong about " << text;
  }
}

TEST(JsonSchema, Types) {
  check({R"({"type": "null"})", {"null"}, {"0", "\"null\""}});
  check({R"({"type": "boolean"})", {"true", "false"}, {"null", "1"}});
  check({R"({"type": "integer"})",
         {"0", "-1", "1234567890123456"},
         {"1.5", "~12345678901234567", "\"1\"", "01"}});
  check({R"({"type": "number"})", {"0", "-1.25", "1e10", "2.5E-3"}, {"1.", ".5", "~1e100", "+1"}});
  check({R"({"type": "string"})", {R"("")", R"("aé😀\n\"\\")", R"("\u00e9")"}, {"\"a", "\"\n\"", "1"}});
  check({R"({"type": ["string", "null", "integer"]})", {"null", "\"a\"", "7"}, {"1.5", "true"}});
  check({R"({"type": ["integer", "number"]})", {"1.5", "2"}, {"null"}});
  check(
      {R"({"type": "string", "title": "t", "description": "d", "default": "x", "examples": [1], "x-order": 5, "$schema": "s"})",
       {"\"a\""},
       {"1"}});
  check({"true", {"{\"a\": [1]}", "1", "null"}, {""}});
  check({"{}", {"{\"a\": [1]}", "1", "null"}, {""}});
}

TEST(JsonSchema, Nullable) {
  const auto grammar = compiled(*rules_of_schema(R"({"type": "integer", "nullable": true})"));
  EXPECT_TRUE(matches(grammar, "null"));
  EXPECT_TRUE(matches(grammar, "3"));
  EXPECT_FALSE(matches(compiled(*rules_of_schema(R"({"type": "integer", "nullable": false})")), "null"));
}

TEST(JsonSchema, Objects) {
  check(
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]})",
       {R"({"a":1,"b":true})", R"({"a": 1, "b": false})"},
       {"{}", R"({"a":1})", R"(~{"b":true,"a":1})", R"(~{"a":1,"b":true,"c":1})", R"({"a":"1","b":true})"}});
  check(
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "required": ["b"]})",
       {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})",
        R"({"a":null,"b":null,"c":null})"},
       {"{}", R"({"a":null})", R"({"a":null,"c":null})", R"({,"b":null})", R"({"b":null,})",
        R"(~{"c":null,"b":null})"}});
  check({R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}})",
         {"{}", R"({"a":null})", R"({"b":null})", R"({"c":null})", R"({"a":null,"c":null})",
          R"({"b":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
         {R"({,"c":null})", R"(~{"c":null,"a":null})", R"({"a":null"b":null})"}});
  check({R"({"properties": {"a\"é/~": {"type": "null"}}, "required": ["a\"é/~"]})",
         {R"({"a\"é/~":null})"},
         {R"({"a":null})"}});
  check({R"({"type": "object"})", {"{}", R"({"x": [1, {"y": null}]})"}, {"[]"}});
  check({R"({"type": "object", "required": ["a", "b"]})", {R"({"a": 1, "b": [2]})"}, {"{}", R"({"a": 1})"}});
  check({R"({"type": "object", "properties": {}, "additionalProperties": false})", {"{}"}, {R"({"a":1})"}});
  check({R"({"properties": {"a": {"type": "null"}, "b": false}, "required": ["a"]})",
         {R"({"a":null})"},
         {R"({"a":null,"b":1})"}});
  check({R"({"properties": {"a": true}, "required": ["a"], "minProperties": 1, "maxProperties": 5})",
         {R"({"a":1})"},
         {"{}"}});
}

TEST(JsonSchema, AdditionalProperties) {
  check({R"({"additionalProperties": {"type": "integer"}})",
         {"{}", R"({"a":1})", R"({"a": 1, "b": 2})"},
         {R"({"a":"x"})"}});
  check({R"({"properties": {"name": {"type": "null"}, "nam": {"type": "null"}}, "required": ["name"],
            "additionalProperties": {"type": "integer"}})",
         {R"({"name":null})", R"({"name":null,"nam":null,"x":1})",
          R"({"name":null,"na":1,"names":2,"":3,"é\n":4,"Name":5})"},
         {R"({"name":1})", R"({"name":null,"nam":1})", R"({"name":null,"x":null})", R"({"x":1})",
          R"(~{"name":null,"\u0061":1})"}});
  check({R"({"properties": {"a": {"type": "null"}}, "additionalProperties": true})",
         {"{}", R"({"a":null})", R"({"b":1})", R"({"a":null,"b":[1]})"},
         {R"({"a":1})", R"({"a":null,})"}});
  // A name that begins another one, and one with a character that must be escaped.
  check({R"({"properties": {"a": {"const": 1}, "a\"b": {"const": 2}}, "additionalProperties": {"const": 3}})",
         {R"({"a":1,"a\"b":2,"a\"":3,"a\"bc":3,"b":3})"},
         {R"({"a":3})", R"({"a\"b":3})"}});
}

TEST(JsonSchema, Arrays) {
  check({R"({"type": "array"})", {"[]", "[1, \"a\", [null]]"}, {"{}", "[1,]"}});
  check({R"({"items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[\"a\"]", "[1 2]"}});
  check({R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
         {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"}});
  check({R"({"items": {"type": "null"}, "minItems": 1})", {"[null]", "[null,null]"}, {"[]"}});
  check({R"({"items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"}});
  check({R"({"items": {"type": "null"}, "maxItems": 1})", {"[]", "[null]"}, {"[null,null]"}});
  check({R"({"items": false})", {"[]"}, {"[1]"}});
  check({R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false})",
         {"[]", "[1]", "[1,null]"},
         {"[null]", "[1,null,1]"}});
  check({R"({"prefixItems": [{"type": "integer"}, {"type": "null"}]})",
         {"[]", "[1]", "[1,null]"},
         {"~[1,null,1]"}});
  check({R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 3})",
         {"[1,null]", "[1,null,null]"},
         {"[1]", "[1,1]", "[1,null,null,null]"}});
  check(
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}, {"type": "null"}], "minItems": 2, "maxItems": 2})",
       {"[1,null]"},
       {"[1]", "[1,null,null]"}});
  check({R"({"items": {"type": "integer"}, "minItems": 150, "maxItems": 160})", {}, {"[1]"}});
  check({R"({"items": {"type": "integer"}, "uniqueItems": false, "maxItems": 99999999999})",
         {"[1,1]"},
         {"[null]"}});
  const auto old =
      compiled(*rules_of_schema(R"({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}})"));
  EXPECT_TRUE(matches(old, "[1,null,null]"));
  EXPECT_FALSE(matches(old, "[1,1]"));
}

TEST(JsonSchema, Strings) {
  check({R"({"type": "string", "minLength": 2, "maxLength": 4})",
         {R"("ab")", R"("éé😀\n")", R"("\ud83d\ude00a")"},
         {R"("a")", R"("abcde")"}});
  check({R"({"minLength": 3})", {R"("abc")", R"("abcdef")"}, {R"("ab")"}});
  check({R"({"maxLength": 0})", {R"("")"}, {R"("a")"}});
  check({R"({"maxLength": 2147483647})", {R"("")", R"("a")"}, {}});
  check({R"({"pattern": "^[a-z]+$"})", {R"("abc")"}, {R"("")", R"("aB")"}});
  check({R"({"pattern": "b"})", {R"("abc")", R"("b")"}, {R"("ac")"}});
  check({R"({"pattern": "^[\"\\\\\n]+$"})", {R"("\"\\\n")"}, {R"("a")", R"(~"\u000a")"}});
  check({R"({"pattern": "^[a-z]*$", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("abc")"},
         {R"("a")", R"("abcd")"}});
  check({R"({"pattern": "^\\d{3}-\\d{4}$", "maxLength": 8})", {R"("123-4567")"}, {R"("1234567")"}});
}

TEST(JsonSchema, Formats) {
  check({R"({"format": "date"})",
         {R"("2024-02-28")", R"("1999-12-31")"},
         {R"("2024-02-30")", R"("2024-13-01")", R"("2024-04-31")", R"("24-1-1")"}});
  check({R"({"format": "time"})",
         {R"("23:59:59Z")", R"("00:00:00.5+02:00")"},
         {R"("24:00:00Z")", R"("12:00")"}});
  check({R"({"format": "date-time"})",
         {R"("2024-01-31T12:30:00Z")"},
         {R"("2024-01-31")", R"("2024-01-32T12:30:00Z")"}});
  check({R"({"format": "uuid"})",
         {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567e89b12d3a456426614174000")"}});
  check({R"({"format": "email"})", {R"("a.b+c@example.co.uk")"}, {R"("a@b@c.de")", R"("a..b@c.de")"}});
  check({R"({"format": "ipv4"})", {R"("192.168.0.255")"}, {R"("256.0.0.1")", R"("1.2.3")"}});
  for (const std::string_view text : {R"("P1Y2M3DT4H5M6S")", R"("PT1H")", R"("P2W")", R"("P1D")"}) {
    EXPECT_TRUE(matches(compiled(*rules_of_schema(R"({"format": "duration"})")), text)) << text;
  }
  EXPECT_FALSE(matches(compiled(*rules_of_schema(R"({"format": "duration"})")), R"("P")"));
  EXPECT_TRUE(matches(compiled(*rules_of_schema(R"({"format": "hostname"})")), R"("api.example.com")"));
  EXPECT_TRUE(matches(compiled(*rules_of_schema(R"({"format": "ipv6"})")), R"("2001:db8:0:0:0:0:0:1")"));
  EXPECT_TRUE(
      matches(compiled(*rules_of_schema(R"({"format": "uri"})")), R"("https://example.com:8080/a/b?c=d#e")"));
}

TEST(JsonSchema, Numbers) {
  check({R"({"type": "integer", "minimum": 3, "maximum": 12})", {"3", "9", "12"}, {"2", "13", "3.5"}});
  check({R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5})", {"4"}, {"3", "5"}});
  check({R"({"type": "integer", "minimum": 2.5, "maximum": 4.5})", {"3", "4"}, {"2", "5"}});
  check({R"({"type": "integer", "minimum": 0, "exclusiveMinimum": 0, "multipleOf": 1})", {"1"}, {"0", "-1"}});
  check({R"({"type": "number", "minimum": 0, "maximum": 1})",
         {"0", "0.5", "1", "1.0"},
         {"-0.1", "1.01", "~5e-1"}});
  check({R"({"type": "number", "exclusiveMinimum": -90})", {"-89.5", "0", "1000"}, {"-90", "-90.5"}});
  EXPECT_TRUE(
      matches(compiled(*rules_of_schema(R"({"type": "integer", "format": "int32"})")), "-2147483648"));
  EXPECT_FALSE(
      matches(compiled(*rules_of_schema(R"({"type": "integer", "format": "int32"})")), "2147483648"));
  EXPECT_FALSE(matches(
      compiled(*rules_of_schema(R"({"type": "integer", "minimum": 5, "exclusiveMinimum": true})")), "5"));
}

TEST(JsonSchema, EnumAndConst) {
  check({R"({"enum": ["a", "b\"c", 1, -2.5, null, true, {"x": [1]}]})",
         {"\"a\"", R"("b\"c")", "1", "-2.5", "null", "true", R"({"x":[1]})"},
         {"\"c\"", "2", "false", R"(~{"x": [1]})"}});
  check({R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}});
  check({R"({"const": "x"})", {"\"x\""}, {"\"y\""}});
  check({R"({"type": "number", "enum": [1, 2.5, "x"]})", {"1", "2.5"}, {"\"x\""}});
}

TEST(JsonSchema, Combinations) {
  check({R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
         {"5", "\"a\""},
         {"\"ab\"", "null"}});
  check({R"({"oneOf": [{"const": 1}, {"const": "a"}]})", {"1", "\"a\""}, {"2"}});
  check({R"({"type": "object", "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
            "anyOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"required": ["n"]}]})",
         {R"({"kind":"a"})", R"({"kind":"a","n":1})", R"({"n":1})", R"({"kind":"b","n":1})"},
         {R"({"kind":"b"})", "{}"}});
  check({R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                       {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
         {R"({"a":1,"b":null})"},
         {R"({"a":1})", R"({"b":null})"}});
  check({R"({"allOf": [{"type": ["integer", "string"]}, {"type": "number", "minimum": 3}], "maximum": 5})",
         {"3", "5"},
         {"2", "6", "\"a\"", "3.5"}});
  check(
      {R"({"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"type": "integer", "maximum": 3}},
            "required": ["a"]}]})",
       {R"({"a":1})", R"({"a":3})"},
       {R"({"a":0})", R"({"a":4})"}});
  check({R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]})", {"2", "3"}, {"1", "4"}});
  check({R"({"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": false},
            {"properties": {"a": true, "b": true}}]})",
         {"{}", R"({"a":null})"},
         {R"({"b":1})"}});
  check({R"({"type": ["object", "null"], "anyOf": [{"type": "string"}, {"type": "null"}]})",
         {"null"},
         {"{}", "\"a\""}});
  check({R"({"minLength": 1, "anyOf": [{"type": "string"}, true, false]})", {"\"a\""}, {"\"\""}});
}

TEST(JsonSchema, References) {
  check({R"({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}})", {"[1,2]"}, {"[null]"}});
  check(
      {R"({"definitions": {"a/b~c": {"type": "null"}}, "items": {"$ref": "#/definitions/a~1b~0c", "description": "x"}})",
       {"[null]"},
       {"[1]"}});
  check(
      {R"({"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["value", "next"]})",
       {R"({"value":1,"next":null})", R"({"value":1,"next":{"value":2,"next":null}})"},
       {R"({"value":1})", R"({"value":1,"next":{}})"}});
  check(
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"kids": {"type": "array",
            "items": {"$ref": "#/$defs/tree"}}},
            "required": ["kids"]}}})",
       {R"({"kids":[]})", R"({"kids":[{"kids":[]},{"kids":[{"kids":[]}]}]})"},
       {"{}", R"({"kids":[1]})"}});
  check({R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1})",
         {"\"a\""},
         {"\"ab\""}});
  check({R"({"prefixItems": [{"type": "integer"}, {"$ref": "#/prefixItems/0"}]})", {"[1,2]"}, {"[1,null]"}});
}

TEST(JsonSchema, RefusalsNameTheKeywordAndThePlace) {
  const std::pair<std::string_view, std::string_view> faults[] = {
      {R"({"properties": {"a": {"type": "integer", "multipleOf": 5}}})",
       R"(schema at #/properties/a: "multipleOf" is not supported)"},
      {R"({"properties": {"a/b": {"not": {}}}})", R"(schema at #/properties/a~1b: "not" is not supported)"},
      {R"({"items": {"if": {}, "then": {}}})", R"(schema at #/items: "if" is not supported)"},
      {R"({"patternProperties": {}})", R"("patternProperties" is not supported)"},
      {R"({"uniqueItems": true})", R"("uniqueItems" is not supported)"},
      {R"({"contains": {}})", R"("contains" is not supported)"},
      {R"({"type": "object", "minProperties": 2})", R"("minProperties" is not supported)"},
      {R"({"type": "object", "maxProperties": 2})", R"("maxProperties" is not supported)"},
      {R"({"propertyNames": {}})", R"("propertyNames" is not supported)"},
      {R"({"dependentRequired": {}})", R"("dependentRequired" is not supported)"},
      {R"({"type": "string", "format": "iri"})", R"("format" "iri" is not supported)"},
      {R"x({"pattern": "(?=a)"})x", R"(schema at #: "pattern" at 2: look-around)"},
      {R"({"pattern": "^(a|b)*$", "maxLength": 3})",
       R"("maxLength" beside "pattern" is supported only where)"},
      {R"({"pattern": "a", "format": "date"})", R"("format" beside "pattern" is not supported)"},
      {R"({"type": "strin"})", R"("type" must be one or more of)"},
      {R"({"type": []})", R"("type" must be one or more of)"},
      {R"({"enum": []})", R"("enum" must be a list of values)"},
      {R"({"enum": ["a"], "minLength": 1})", R"("minLength" beside "enum" or "const" is not supported)"},
      {R"({"enum": ["a"], "type": "integer"})", "no value of \"enum\""},
      {R"({"enum": [1], "const": 2})", R"("const" is not one of "enum")"},
      {R"({"anyOf": []})", R"("anyOf" must be a list of schemas)"},
      {R"({"allOf": {}})", R"("allOf" must be a list of schemas)"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})",
       R"(schema at #/allOf/1: "pattern" is given twice)"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", R"("type" contradicts)"},
      {R"({"type": "null", "anyOf": [{"type": "string"}]})", R"(no alternative of "anyOf" fits)"},
      {R"({"items": {"$ref": "#/$defs/missing"}})",
       R"(schema at #/items: "$ref" leads to "#/$defs/missing", which is not in this schema)"},
      {R"({"$ref": "http://example.com/a"})", R"(which is not in this schema)"},
      {R"({"$ref": 5})", R"("$ref" must be a string)"},
      {R"({"$defs": {"a": {"$ref": "#/$defs/b", "type": "string"}, "b": {"$ref": "#/$defs/a", "type": "string"}},
            "$ref": "#/$defs/a", "type": "string"})",
       "leads in a circle"},
      {R"({"properties": []})", R"("properties" must be an object)"},
      {R"({"required": "a"})", R"("required" must be a list of names)"},
      {R"({"required": [1]})", R"("required" must be a list of names)"},
      {R"({"required": ["a"], "properties": {}, "additionalProperties": false})",
       R"("required" names "a", which)"},
      {R"({"minItems": -1})", R"("minItems" must be a whole number that is not negative)"},
      {R"({"minItems": 1.5})", R"("minItems" must be a whole number)"},
      {R"({"minItems": 3, "maxItems": 2})", R"("minItems" asks for more items than there can be)"},
      {R"({"minLength": 3, "maxLength": 2})", R"("minLength" is above "maxLength")"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no integer lies between the bounds"},
      {R"({"type": "number", "minimum": 0.5})", R"("minimum" must be a whole number)"},
      {R"({"minimum": "a"})", R"("minimum" must be a number)"},
      {R"({"prefixItems": {}})", R"("prefixItems" must be a list of schemas)"},
      {R"({"properties": {"a": 5}})", "schema at #/properties/a: a schema is an object, true or false"},
      {R"({"type": "string", "unheardOf": 1})", R"("unheardOf" is not supported)"},
      {"[]", "schema at #: a schema is an object"},
      {"{", "schema: not JSON"},
      {"", "schema: not JSON"},
      {"{} {}", "schema: not JSON"},
  };
  for (const auto& [schema, message] : faults) {
    const auto rules = rules_of_schema(schema);
    ASSERT_FALSE(rules.has_value()) << schema;
    EXPECT_EQ(rules.error().code(), Code::kInvalidArgument) << schema;
    EXPECT_NE(rules.error().message().find(message), std::string::npos) << schema << "\n"
                                                                        << rules.error().message();
  }
  // Nothing can end: said when the rules are compiled.
  const auto endless = rules_of_schema(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})");
  ASSERT_TRUE(endless.has_value());
  EXPECT_NE(Grammar::compile(*endless, byte_vocabulary()).error().message().find("no text can match"),
            std::string::npos);
}

TEST(JsonSchema, HostileSchemasAreRefusedOrSmall) {
  std::string deep = "{}";
  for (uint32_t i = 0; i < 300; ++i) deep = fmt::format("{{\"items\": {}}}", deep);
  std::string deeper(5000, '[');
  std::string wide = R"({"anyOf": [{"type": "object"})";
  for (int i = 0; i < 200; ++i) wide += fmt::format(R"(, {{"required": ["p{}"]}})", i);
  wide += R"(], "oneOf": [{"type": "object"})";
  for (int i = 0; i < 200; ++i) wide += fmt::format(R"(, {{"required": ["q{}"]}})", i);
  wide += "]}";
  std::string doubling = R"({"$defs": {"d0": {"type": "null"})";
  for (int i = 1; i < 40; ++i)
    doubling += fmt::format(
        R"(, "d{0}": {{"prefixItems": [{{"$ref": "#/$defs/d{1}"}}, {{"$ref": "#/$defs/d{1}"}}]}})", i, i - 1);
  doubling += R"(}, "$ref": "#/$defs/d39"})";
  const std::string circle = R"({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})";
  const std::string self = R"({"allOf": [{"$ref": "#"}], "type": "object"})";
  const std::string long_text(kSourceBytesMax + 1, ' ');
  for (const std::string& schema : {deep, deeper, wide, doubling, circle, self, long_text}) {
    const auto rules = rules_of_schema(schema);
    if (!rules) {
      EXPECT_FALSE(rules.error().message().empty());
      continue;
    }
    const auto grammar = Grammar::compile(*rules, byte_vocabulary());
    EXPECT_TRUE(grammar.has_value() || !grammar.error().message().empty());
  }
  EXPECT_EQ(rules_of_schema(deep).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(rules_of_schema(deeper).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(rules_of_schema(long_text).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(rules_of_schema(wide).error().code(), Code::kResourceExhausted);
}

TEST(JsonSchema, ManyOptionalPropertiesStaySmall) {
  std::string schema = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 400; ++i)
    schema += fmt::format(R"({}"property{}": {{"type": "string"}})", i == 0 ? "" : ",", i);
  schema += "}}";
  const auto grammar = compiled(*rules_of_schema(schema));
  EXPECT_LT(grammar->automaton().state_count(), 30'000U);
  EXPECT_TRUE(matches(grammar, R"({"property0": "a", "property399": "b"})"));
  EXPECT_TRUE(matches(grammar, "{}"));
}

// Every level stands twice in its list: the first element, and the others.
TEST(JsonSchema, ListsInListsStaySmall) {
  std::string schema = R"({"type": "integer"})";
  for (int level = 0; level < 60; ++level) {
    schema = fmt::format(R"({{"type": "array", "minItems": 1, "items": {}}})", schema);
  }
  const auto rules = rules_of_schema(schema);
  ASSERT_TRUE(rules.has_value()) << rules.error().message();
  const std::string text = rules->to_gbnf().value();
  EXPECT_LT(text.size(), 200'000U);
  const auto grammar = compiled(text);
  EXPECT_TRUE(matches(grammar, std::string(60, '[') + "1" + std::string(60, ']')));
  EXPECT_FALSE(matches(grammar, std::string(59, '[') + "1" + std::string(59, ']')));
}

}  // namespace
}  // namespace strata::grammar
