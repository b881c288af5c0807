#include "timeline/json_walk.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tk {

JsonIndex::JsonIndex() = default;
JsonIndex::~JsonIndex() = default;

std::string JsonIndex::build(const char* text, std::size_t size) {
  if (!impl_) {
    if (simdjson::get_active_implementation()->create_dom_parser_implementation(size, 1, impl_))
      throw std::bad_alloc();
  } else if (impl_->capacity() < size && impl_->set_capacity(size)) {
    throw std::bad_alloc();
  }
  const simdjson::error_code error = impl_->stage1(reinterpret_cast<const std::uint8_t*>(text),
                                                   size, simdjson::stage1_mode::regular);
  return error ? simdjson::error_message(error) : std::string();
}

const std::uint32_t* JsonIndex::begin() const { return impl_->structural_indexes.get(); }
const std::uint32_t* JsonIndex::end() const { return begin() + impl_->n_structural_indexes; }

bool json_unescaped(std::string_view raw, std::string& scratch, std::string_view& value) {
  if (raw.find('\\') == raw.npos) {
    value = raw;
    return true;
  }
  const auto parsed = nlohmann::json::parse(cat('"', raw, '"'), nullptr, false);
  if (!parsed.is_string()) return false;
  scratch = parsed.get<std::string>();
  value = scratch;
  return true;
}

}  // namespace tk
