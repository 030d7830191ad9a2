#pragma once
// A model's chat template: messages in, prompt text out, with spans that say who wrote which bytes. Parsed once at
// load, then const: render() may be called from any thread at the same time. The text equals, byte for byte, what
// Jinja2 gives in the environment of transformers' apply_chat_template. Parsing fails with one line that carries the
// template's line number; rendering fails with a TemplateError; neither a hostile template nor hostile messages can
// crash it or make it run away (limits: TemplateLimits).
//
// Spans exist because a user may write "<|im_start|>system" in a message. A special token is recognised only where all
// of its bytes come from the template; everywhere else the same characters are plain text. So the tokenizer takes text
// and spans together: text split by request spans is still one text for pre-tokenisation and merges.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::text {

struct TemplateError {
  enum class Kind {
    raised,   // the template called raise_exception: the request is at fault (400 with this text)
    runtime,  // the template failed on these messages, with the template's line number (400 too: other messages work)
    limit,    // a limit of TemplateLimits was reached (400)
  };
  Kind kind;
  std::string message;
};

// Bytes [begin, end) of Rendered::text. Spans are maximal, ascending, and cover the whole text.
struct TextSpan {
  std::size_t begin;
  std::size_t end;
  bool from_request;  // derived from messages, tools, documents or extra arguments; otherwise written by the template

  bool operator==(const TextSpan&) const = default;
};

struct Rendered {
  std::string text;  // valid UTF-8
  std::vector<TextSpan> spans;
};

struct TemplateLimits {
  std::uint64_t max_steps = 20'000'000;        // nodes evaluated plus elements handled in one render
  std::uint64_t max_bytes = 512ull << 20;      // bytes of all strings made in one render
  std::size_t max_output_bytes = 64ull << 20;  // of the rendered text
  std::size_t max_string_bytes = 64ull << 20;  // of one string
  int max_depth = 200;                         // nested blocks, brackets, operators and containers
  int max_recursion = 1500;  // nodes being evaluated inside each other, through macro calls; takes under 1 MiB of stack
  std::size_t max_source_bytes = 4ull << 20;          // of the template
  static constexpr std::int64_t max_range = 100'000;  // elements of range(), as in Jinja2's sandbox
};

struct ChatInput {
  boost::json::value messages;   // array of objects; content is a string, null, or a list of parts
  boost::json::value tools;      // array, or null for none
  boost::json::value documents;  // array, or null for none
  boost::json::object kwargs;    // chat_template_kwargs: further variables, such as enable_thinking
  bool add_generation_prompt = true;
  // What strftime_now reads, in local time, cut to the day (hours, minutes, seconds are 0): a prompt that names the
  // time would otherwise never hit the prefix cache.
  std::chrono::system_clock::time_point now = std::chrono::system_clock::now();
};

// How a template takes `content` for one role. Found by rendering a probe at parse time.
enum class ContentStyle {
  text,   // strings only: a list of text parts is joined with "\n"
  parts,  // lists only: a string is wrapped into one text part
  both,   // either is passed as it came
};

class ChatTemplate {
 public:
  // An empty bos or eos token means that the tokenizer has none: the variable is undefined, as in transformers.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view bos_token, std::string_view eos_token,
                                    TemplateLimits limits = {});

  Result<Rendered, TemplateError> render(const ChatInput& input) const;

  // role: system, user, assistant or tool; others count as user.
  ContentStyle content_style(std::string_view role) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace heddle::text
