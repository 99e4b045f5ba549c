#pragma once

#include <string_view>
#include <unordered_map>

#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {

using MethodTable = std::unordered_map<std::string_view, Method>;

const MethodTable& text_methods();

}  // namespace strata::chat_template
