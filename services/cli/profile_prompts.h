#pragma once
// The prompts that `strata profile record` runs when it is given none: a little of everything that people
// ask.

#include <string>
#include <vector>

namespace strata::cli {

std::vector<std::string> built_in_prompts();
// One per line; empty lines and those that begin with # are left out.
std::vector<std::string> read_prompts(const std::string& text);

}  // namespace strata::cli
