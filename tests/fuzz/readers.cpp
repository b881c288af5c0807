#include "readers.h"

#include "base/error.h"
#include "import/json.h"
#include "import/pt2.h"
#include "import/pt2_archive.h"
#include "import/safetensors.h"
#include "import/tokenizer.h"
#include "import/zip.h"
#include "profile_readers.h"

namespace tk::fuzz {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Reads every byte, so that a view outside its file is found.
void touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (std::byte b : bytes) sum += static_cast<unsigned>(b);
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

// A part of a file may be wrong and the others right: go on.
template <typename F>
void may_refuse(F f) {
  try {
    f();
  } catch (const UserError&) {
  }
}

void touch_all(const json::Value& value) {
  (void)value.path();
  switch (value.kind()) {
    case json::Kind::object:
      for (const json::Member& member : value.members()) touch_all(member.value);
      break;
    case json::Kind::array:
      for (const json::Value& element : value.elements()) touch_all(element);
      break;
    case json::Kind::string:
      touch(bytes_of(value.string()));
      break;
    case json::Kind::integer:
    case json::Kind::number:
      (void)value.number();
      break;
    default:
      break;
  }
}

void read_json(std::span<const std::byte> bytes) {
  const json::Document document = json::parse(text_of(bytes), "mutant.json");
  touch_all(document.root());
}

void read_zip(std::span<const std::byte> bytes) {
  const Zip zip = Zip::parse(bytes, "mutant.zip");
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.is_stored) touch(zip.stored(entry));
    may_refuse([&] { touch(bytes_of(zip.read(entry))); });
  }
}

void read_safetensors(std::span<const std::byte> bytes) {
  const SafeTensors file = SafeTensors::parse(bytes, "mutant.safetensors");
  for (const std::string& name : file.names())
    may_refuse([&] {
      const Tensor* tensor = file.find(name);
      TK_CHECK(tensor != nullptr, name);
      touch(
          {static_cast<const std::byte*>(tensor->data), static_cast<std::size_t>(tensor->bytes())});
    });
}

// The header alone, with its size put right and as much data as many.safetensors has: in a whole
// file, nearly every edit of the header is only a wrong size.
void read_safetensors_header(std::span<const std::byte> bytes) {
  const std::uint64_t n = bytes.size();
  std::string file(reinterpret_cast<const char*>(&n), sizeof n);
  file.append(text_of(bytes)).append(120, '\0');
  read_safetensors(bytes_of(file));
}

void read_tokenizer(std::span<const std::byte> bytes) {
  const Tokenizer tokenizer = Tokenizer::parse(text_of(bytes), "mutant.json");
  constexpr std::string_view texts[] = {
      "", "Once upon a time, there was a caf\xc3\xa9.  12345\n\n\t<s>word</s> <|end|>x",
      "\xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 e\xcc\x81 "
      "\xff\xfe\xe4\xb8",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};
  for (std::string_view text : texts)
    may_refuse([&] {
      const std::vector<std::int64_t> ids = tokenizer.encode(text);
      may_refuse([&] { (void)tokenizer.decode(ids, false); });
      TokenStream stream(tokenizer);
      for (std::int64_t id : ids) (void)stream.push(id);
      (void)stream.finish();
    });
  const std::int64_t ids[] = {-1, 0, 1, 2, 3, 300, 1LL << 40, tokenizer.size()};
  (void)tokenizer.decode(ids);
}

void read_pt2(std::span<const std::byte> bytes) {
  const Pt2Archive archive = Pt2Archive::of(Zip::parse(bytes, "mutant.pt2"));
  may_refuse([&] { (void)archive.weights(); });
  const json::Document document = archive.graph();
  (void)import_pt2(document.root());
}

// The graph alone: in an archive, nearly every mutant of it fails at the checksum.
void read_pt2_graph(std::span<const std::byte> bytes) {
  const json::Document document = json::parse(text_of(bytes), "mutant.json");
  ImportOptions options;
  options.allow_unknown = true;
  (void)import_pt2(document.root(), options);
}

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> table = {
      {"json", {"llama2.json", "bytes.safetensors.json", "gpt2.json"}, read_json},
      {"zip", {"stored.zip", "deflated.zip", "streamed.zip", "zip64.zip"}, read_zip},
      {"safetensors", {"plain.safetensors", "many.safetensors"}, read_safetensors},
      {"safetensors-header", {"bytes.safetensors.json"}, read_safetensors_header},
      {"tokenizer", {"gpt2.json", "llama3.json", "llama2.json", "metaspace.json"}, read_tokenizer},
      {"pt2", {"model.pt2"}, read_pt2},
      {"pt2-graph", {"model.json"}, read_pt2_graph},
      {"kernel-csv", {"kernels.csv", "op_summary.csv"}, read_kernel_table},
      {"trace-json", {"trace.json", "trace_object.json"}, read_trace_file},
  };
  return table;
}

}  // namespace tk::fuzz
