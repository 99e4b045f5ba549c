#pragma once
// The OpenAPI 3.1 document of everything that is served: openapi.json beside this file, put into the program
// at build. A test holds it to the routes and to what a gateway answers.

#include <string_view>

namespace strata::gateway {

std::string_view openapi_document();

}  // namespace strata::gateway
