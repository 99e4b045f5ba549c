#include "gateway/chat_template/chat_template.h"

#include <ctime>

#include "gateway/chat_template/from_json.h"
#include "gateway/chat_template/interpreter.h"
#include "gateway/chat_template/lexer.h"
#include "gateway/chat_template/parser.h"

namespace strata::chat_template {

struct ChatTemplate::Impl {
  Program program;
};

namespace {

Failure as_failure(const TemplateError& error) {
  return fail(error.code, "chat template:{}: {}", error.line, error.message);
}

void define_all(Interpreter& run, const boost::json::object& variables, Origin origin) {
  for (const auto& member : variables) {
    run.define(std::string_view(member.key().data(), member.key().size()),
               from_json(run.heap(), run.budget(), member.value(), origin));
  }
}

MarkedText render_program(const Program& program, const RenderInput& input) {
  Budget budget(json_bytes(input.messages) + json_bytes(input.tools) + json_bytes(input.request_variables) +
                json_bytes(input.variables));
  Interpreter run(program, budget, input.now_s ? static_cast<std::time_t>(*input.now_s) : std::time(nullptr));
  // Later ones win: a request cannot take the place of what the server or the conversation says.
  define_all(run, input.request_variables, Origin::kRequest);
  define_all(run, input.variables, Origin::kTemplate);
  run.define("messages", from_json(run.heap(), budget, input.messages, Origin::kRequest));
  run.define("tools", from_json(run.heap(), budget, input.tools, Origin::kRequest));
  run.define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  return run.run();
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return fail(Code::kInvalidArgument, "chat template:1: longer than {} bytes", kSourceBytesMax);
  }
  try {
    return ChatTemplate(std::make_shared<const Impl>(Impl{Parser(tokenize(source)).parse()}));
  } catch (const TemplateError& error) {
    return as_failure(error);
  }
}

Result<tokenizer::MarkedText> ChatTemplate::render(const RenderInput& input) const {
  try {
    return render_program(impl_->program, input);
  } catch (const TemplateError& error) {
    return as_failure(error);
  }
}

}  // namespace strata::chat_template
