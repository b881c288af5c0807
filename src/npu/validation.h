// How far predictions are off, and on what (VN-110): made by `simulate --cases`, compiled in from
// devices/validation.json, printed as the band of every report.
#pragma once

#include <string>
#include <vector>

#include "npu/simulation.h"

namespace tk {

// One published record: what was predicted, or why it was not.
struct CaseResult {
  std::string id, run, source, model, phase, kind, unit;
  double published = 0, predicted = 0;         // by costs that have not seen this model
  double step_s = 0, published_step_s = 0;     // of one forward, where the record says so
  double in_sample = 0, in_sample_step_s = 0;  // by the costs that --target uses
  bool fitted = false;                         // the fit has seen the model, so the two differ
  std::string refused;                         // not empty: not predicted, and why
  std::vector<std::string> notes;              // what the prediction leaves out
  bool informed = false;  // constants were read off this source: no evidence (VN-113)
  double error() const { return predicted / published - 1; }
};

struct Validation {
  std::string cost_id;
  std::vector<CaseResult> cases;
  // One per kind, and "ratio": of predictions that have not seen the model, and of those that have.
  std::vector<Band> bands, in_sample;
  int pairs = 0, pairs_right = 0;
};

// `cases` is the text of published_cases.json; configs are FOLDER/<model>.json. Throws TK1421 for
// what is no such file.
Validation run_cases(const std::string& cases, const std::string& file, const std::string& folder,
                     const CostFile& costs);
std::string to_json(const Validation& v);
std::string to_markdown(const Validation& v);
std::string summary_text(const Validation& v);

// A formula of a record, over S, global_batch, query_len, packages and accepted. TK1421.
struct FormulaNames {
  // NOLINTNEXTLINE(readability-identifier-naming): as the formulas write it
  double S = 0, global_batch = 0, query_len = 0, packages = 0, accepted = 0;
};
double eval_formula(std::string_view formula, const FormulaNames& names);

}  // namespace tk
