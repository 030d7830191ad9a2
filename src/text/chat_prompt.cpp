#include "text/chat_prompt.h"

#include <string_view>

namespace heddle::text {

Result<std::vector<TokenId>, TemplateError> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                                        const ChatInput& input, EncodeOptions options) {
  Result<Rendered, TemplateError> rendered = chat_template.render(input);
  if (!rendered) return tl::unexpected(rendered.error());
  std::vector<EncodeSpan> spans;
  spans.reserve(rendered->spans.size());
  for (const TextSpan& span : rendered->spans)
    spans.push_back({std::string_view(rendered->text).substr(span.begin, span.end - span.begin), !span.from_request});
  return tokenizer.encode(spans, options);
}

}  // namespace heddle::text
