#pragma once
// Tokens to a Template, with Jinja2's grammar plus loop controls, do and generation. Pure function; an error is one
// line with the line number. Nesting is bounded by TemplateLimits::max_depth.
#include <string_view>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/jinja_ast.h"

namespace heddle::text::jinja {

Result<Template> parse_template(std::string_view source, const TemplateLimits& limits);

}  // namespace heddle::text::jinja
