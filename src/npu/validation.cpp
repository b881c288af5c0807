#include "npu/validation.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace tk {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double v) { return std::round(v * 1e4) / 1e4; }

Json bands_json(const std::vector<Band>& bands) {
  Json out = Json::array();
  for (const Band& b : bands)
    out.push_back({{"kind", b.kind},
                   {"cases", b.cases},
                   {"median_error", rounded(b.median)},
                   {"p90_error", rounded(b.p90)}});
  return out;
}

std::string table(const Validation& v) {
  std::string out =
      "| kind | cases | median error | p90 error | median, model seen | p90, model seen |\n"
      "|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < v.bands.size(); ++i) {
    const Band& b = v.bands[i];
    out += fmt::format("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n", b.kind, b.cases,
                       100 * b.median, 100 * b.p90, 100 * v.in_sample[i].median,
                       100 * v.in_sample[i].p90);
  }
  return out;
}

}  // namespace

Band band_of(std::string_view kind) {
  for (std::size_t i = 0; i < npu_data::file_count; ++i) {
    if (npu_data::files[i].name != "validation") continue;
    const Json j = Json::parse(npu_data::files[i].json);
    for (const Json& b : j["bands"])
      if (b["kind"] == kind)
        return {std::string(kind), b["cases"].get<int>(), b["median_error"].get<double>(),
                b["p90_error"].get<double>()};
  }
  return {std::string(kind), 0, 0, 0};
}

std::string to_json(const Validation& v) {
  Json j;
  j["kind"] = "validation";
  j["cost_id"] = v.cost_id;
  j["bands"] = bands_json(v.bands);
  j["in_sample_bands"] = bands_json(v.in_sample);
  j["pairs"] = {{"compared", v.pairs}, {"right_order", v.pairs_right}};
  j["predictions"] = Json::array();
  j["not_expressed"] = Json::array();
  for (const CaseResult& c : v.cases) {
    if (!c.refused.empty()) {
      j["not_expressed"].push_back(
          {{"id", c.id}, {"run", c.run}, {"model", c.model}, {"why", c.refused}});
      continue;
    }
    const Band* band = nullptr;
    for (const Band& b : v.bands)
      if (b.kind == c.kind) band = &b;
    Json p = {{"id", c.id},
              {"run", c.run},
              {"source", c.source},
              {"model", c.model},
              {"phase", c.phase},
              {"kind", c.kind},
              {"predicted", rounded(c.predicted)},
              {"published", c.published},
              {"unit", c.unit},
              {"error", rounded(c.error())},
              {"in_sample", rounded(c.in_sample)},
              {"model_in_fit", c.fitted},
              {"band", band != nullptr ? rounded(band->p90) : 0},
              {"informed_constants", c.informed}};
    if (c.step_s > 0) {
      p["step_ms"] = rounded(1e3 * c.step_s);
      p["published_step_ms"] = rounded(1e3 * c.published_step_s);
    }
    if (!c.notes.empty()) p["left_out"] = c.notes;
    j["predictions"].push_back(p);
  }
  return j.dump(1) + "\n";
}

std::string summary_text(const Validation& v) {
  std::string out = fmt::format("{:<50} {:>6} {:>8} {:>8}\n",
                                "kind (each model held out of the fit)", "cases", "median", "p90");
  for (const Band& b : v.bands)
    out += fmt::format("{:<50} {:>6} {:>6.1f} % {:>6.1f} %\n", b.kind, b.cases, 100 * b.median,
                       100 * b.p90);
  for (const Band& b : v.in_sample)
    if (b.kind.ends_with("step"))
      out += fmt::format("  model seen by the fit: {:<25} {:>6} {:>6.1f} % {:>6.1f} %\n", b.kind,
                         b.cases, 100 * b.median, 100 * b.p90);
  out += fmt::format("order of pairs of one model and phase: {} of {} right\n", v.pairs_right,
                     v.pairs);
  std::size_t refused = 0;
  for (const CaseResult& c : v.cases) refused += c.refused.empty() ? 0 : 1;
  out += fmt::format("records: {}, not expressed: {}\n", v.cases.size(), refused);
  return out;
}

std::string to_markdown(const Validation& v) {
  std::string out = table(v);
  out += fmt::format("\nOrder of pairs of the same model and phase: {} of {} right.\n\n",
                     v.pairs_right, v.pairs);
  out +=
      "| record | model | kind | predicted | published | error | model seen | left out |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const CaseResult& c : v.cases) {
    if (!c.refused.empty()) continue;
    std::string notes;
    for (const std::string& n : c.notes) notes += cat(notes.empty() ? "" : "; ", n);
    if (c.informed) notes += cat(notes.empty() ? "" : "; ", "constants were read off this source");
    out += fmt::format("| {} | {} | {} | {:.4g} | {:.4g} {} | {:+.1f} % | {:+.1f} % | {} |\n", c.id,
                       c.model, c.kind, c.predicted, c.published, c.unit, 100 * c.error(),
                       100 * (c.in_sample / c.published - 1), notes);
  }
  out += "\nNot expressed, so not predicted:\n\n";
  for (const CaseResult& c : v.cases)
    if (!c.refused.empty()) out += fmt::format("- {} ({}): {}\n", c.id, c.model, c.refused);
  return out;
}

}  // namespace tk
