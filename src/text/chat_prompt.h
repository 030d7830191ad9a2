#pragma once
// A conversation as token ids: the template renders it, and only what the template wrote may become special tokens.
// Const arguments; any thread.
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace heddle::text {

Result<std::vector<TokenId>, TemplateError> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                                        const ChatInput& input, EncodeOptions options = {});

}  // namespace heddle::text
