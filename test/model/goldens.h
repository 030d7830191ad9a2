#pragma once
// Reads the goldens that tools/make_goldens.py and tools/make_tiny_models.py write: token ids, and the most likely next
// tokens with log-probabilities at chosen positions, as transformers computes them in float32.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace heddle {

struct GoldenRow {
  uint32_t position = 0;
  std::vector<std::pair<TokenId, double>> top;  // id, log-probability
};

struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<GoldenRow> rows;
  std::vector<TokenId> greedy;  // what greedy decoding appends; may be empty
};

struct Goldens {
  std::string model_sha256;
  std::vector<GoldenPrompt> prompts;

  const GoldenPrompt& prompt(const std::string& name) const {
    for (const GoldenPrompt& p : prompts)
      if (p.name == name) return p;
    HEDDLE_CHECK(false);
  }
};

inline Goldens read_goldens(const std::string& file) {
  std::ifstream in(std::string(HEDDLE_SOURCE_DIR "/test/data/model/") + file);
  HEDDLE_CHECK(in.good());
  Goldens goldens;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string kind, item;
    words >> kind;
    if (kind == "model") {
      words >> goldens.model_sha256;
    } else if (kind == "prompt") {
      words >> goldens.prompts.emplace_back().name;
    } else if (kind == "ids" || kind == "greedy") {
      auto& ids = kind == "ids" ? goldens.prompts.back().ids : goldens.prompts.back().greedy;
      while (words >> item) ids.push_back(std::stoi(item));
    } else if (kind == "row") {
      GoldenRow& row = goldens.prompts.back().rows.emplace_back();
      words >> row.position;
      while (words >> item) {
        const size_t colon = item.find(':');
        row.top.emplace_back(std::stoi(item.substr(0, colon)), std::stod(item.substr(colon + 1)));
      }
    } else {
      HEDDLE_CHECK(kind.empty() || kind[0] == '#');
    }
  }
  HEDDLE_CHECK(!goldens.prompts.empty());
  return goldens;
}

inline double log_sum_exp(std::span<const float> logits) {
  double max = -1e300, sum = 0;
  for (const float y : logits) max = std::max(max, static_cast<double>(y));
  for (const float y : logits) sum += std::exp(static_cast<double>(y) - max);
  return max + std::log(sum);
}

// The largest difference in log-probability over the golden's tokens.
inline double worst_difference(const GoldenRow& row, std::span<const float> logits) {
  const double norm = log_sum_exp(logits);
  double worst = 0;
  for (const auto& [token, expected] : row.top)
    worst = std::max(worst, std::abs(static_cast<double>(logits[static_cast<size_t>(token)]) - norm - expected));
  return worst;
}

}  // namespace heddle
