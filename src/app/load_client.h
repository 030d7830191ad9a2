#pragma once
// A load client for OpenAI completion servers: a fixed number of streams at a time until all requests are done. Cheap
// on purpose (one thread, no JSON tree in the hot path): on a small machine a costly client measures itself. It says
// how much CPU it took. Works against any server with /v1/completions and SSE.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::app {

struct LoadOptions {
  std::string host, port;
  std::string model;  // sent if not empty
  uint32_t concurrency = 16;
  uint32_t requests = 64;
  uint32_t prompt_words = 75;  // English words, about 1.3 tokens each; each prompt differs from its first word on
  uint32_t max_tokens = 64;
  uint64_t seed = 1;
  std::string api_key;
};

struct LoadResult {
  uint32_t completed = 0, failed = 0;
  uint64_t prompt_tokens = 0, output_tokens = 0;  // as the server's usage says
  double seconds = 0;
  double client_cpu_seconds = 0;
  std::vector<double> ttft, itl, e2e;  // seconds, sorted
  std::string first_error;
};

// Runs the load; `progress` is called with the number of finished requests.
Result<LoadResult> run_load(const LoadOptions& options, const std::function<void(uint32_t)>& progress);

// "http://127.0.0.1:8000" into host and port.
Result<void> parse_url(const std::string& url, std::string& host, std::string& port);

double percentile(const std::vector<double>& sorted, double share);  // 0 for none

}  // namespace heddle::app
