// The files of a run (BD §2): inputs.json, raw_ops.json, raw_ops_details.json, and the writer that
// never leaves half a file.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "timeline/find.h"
#include "timeline/step_ops.h"
#include "timeline/steps.h"
#include "timeline/theory.h"

namespace tk {

// Beside the file, then renamed: never half a file. Not waited for until it is on the disk, as a
// run has hundreds and can be repeated. Throws TK0103.
void write_output(const std::filesystem::path& path, std::string_view text);
std::string json_text(const nlohmann::json& value);
void write_json(const std::filesystem::path& path, const nlohmann::json& value);

// BD-19. One step, written as text: a step of 200,000 kernels takes a second, not ten.
std::string raw_ops_text(const Timeline& t, const StepOps& ops, const StepSummary& step);
std::string raw_ops_details_text(const Timeline& t, const StepOps& ops, const StepSummary& step,
                                 const Theory& theory = {});

void append_json_text(std::string& out, std::string_view text);  // quoted and escaped

}  // namespace tk
