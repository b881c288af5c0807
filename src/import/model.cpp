#include "import/model.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "import/pt2_archive.h"
#include "import/safetensors.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view capture_help = "capture the model first: python -m tokamak.capture ";

bool has_safetensors(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") ||
         fs::exists(folder / "model.safetensors.index.json");
}

fs::path find_graph(const fs::path& path) {
  if (!fs::exists(path))
    throw UserError("TK0230", "there is no such file or folder").at(path.string());
  if (!fs::is_directory(path)) {
    if (path.extension() == ".pt2") return path;
    throw UserError("TK0230", "expected a .pt2 file or a folder with one").at(path.string());
  }
  if (fs::exists(path / "model.pt2")) return path / "model.pt2";
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".pt2") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    UserError error("TK0230", "the folder has no .pt2 file");
    if (fs::exists(path / "config.json"))
      throw std::move(error).at(path.string()).help(cat(capture_help, path.string(), " -o DIR"));
    throw std::move(error).at(path.string());
  }
  std::string list;
  for (const fs::path& p : found) list += cat(list.empty() ? "" : ", ", p.filename().string());
  throw UserError("TK0230", cat("the folder has several .pt2 files: ", list))
      .at(path.string())
      .help("name one of them");
}

// Where a weight's data comes from, for messages.
struct Source {
  Tensor tensor;
  std::string file;
};

class Finder {
 public:
  Finder(const Pt2Archive& archive, const fs::path& graph_path, std::string wrapper)
      : inside_(archive.weights()), graph_file_(graph_path.string()), wrapper_(std::move(wrapper)) {
    for (const fs::path& folder : {graph_path.parent_path(), graph_path.parent_path() / "hf"})
      if (!beside_ && has_safetensors(folder)) {
        beside_file_ = folder.string();
        beside_ = SafeTensors::open(folder);
      }
  }

  std::optional<Source> find(const std::string& name) const {
    if (auto it = inside_.find(name); it != inside_.end()) return Source{it->second, graph_file_};
    if (!beside_) return std::nullopt;
    const Tensor* t = beside_->find(name);
    // A checkpoint names its weights without the wrapper of the capture.
    if (t == nullptr && !wrapper_.empty() && name.starts_with(wrapper_))
      t = beside_->find(std::string_view(name).substr(wrapper_.size()));
    if (t == nullptr) return std::nullopt;
    return Source{*t, beside_file_};
  }
  bool has_file() const { return beside_.has_value(); }
  const std::string& file() const { return beside_ ? beside_file_ : graph_file_; }

 private:
  Weights inside_;
  std::optional<SafeTensors> beside_;
  std::string graph_file_, beside_file_, wrapper_;
};

void check_type(const Value& weight, const Source& source, const std::string& graph_file) {
  const Type& type = weight.type;
  bool same = type.dtype == source.tensor.dtype && type.rank() == source.tensor.rank();
  for (int i = 0; same && i < type.rank(); ++i) same = type.dim(i).is(source.tensor.shape[i]);
  if (same) return;
  throw UserError("TK0232", cat("the weight '", weight.name, "' is ", name_of(source.tensor.dtype),
                                source.tensor.shape.str(), " in ", source.file,
                                ", but the graph of ", graph_file, " needs ", type.str()))
      .at(source.file)
      .help("the weights are not those that the graph was captured with");
}

void load_weights(CapturedModel* model, const Finder& finder) {
  std::vector<std::string> missing;
  for (const auto& weight : model->graph.weights()) {
    const auto source = finder.find(weight->name);
    if (!source) {
      missing.push_back(weight->name);
      continue;
    }
    check_type(*weight, *source, model->graph_path.string());
    model->weights.emplace(weight->name, source->tensor);
  }
  if (missing.empty()) {
    model->has_weights = true;
    return;
  }
  if (!finder.has_file()) {  // captured without weights, as the large graphs are
    model->weights.clear();
    return;
  }
  std::string list;
  for (std::size_t i = 0; i < missing.size() && i < 5; ++i) list += cat("\n    ", missing[i]);
  if (missing.size() > 5) list += cat("\n    and ", missing.size() - 5, " more");
  throw UserError("TK0231", cat(missing.size(), " of the graph's ", model->graph.weights().size(),
                                " weights ", missing.size() == 1 ? "is" : "are", " missing:", list))
      .at(finder.file());
}

// The first value that is NaN or infinite: all bits of the exponent set.
template <typename Bits>
std::int64_t first_not_finite(const TensorView& t, Bits exponent) {
  const auto* data = t.as<Bits>();
  const std::int64_t n = t.numel();
  constexpr std::int64_t block = 4096;
  for (std::int64_t at = 0; at < n; at += block) {
    const std::int64_t end = std::min(n, at + block);
    bool bad = false;
    for (std::int64_t i = at; i < end; ++i) bad |= (data[i] & exponent) == exponent;
    if (!bad) continue;
    for (std::int64_t i = at; i < end; ++i)
      if ((data[i] & exponent) == exponent) return i;
  }
  return -1;
}

std::int64_t first_not_finite(const TensorView& t) {
  switch (t.dtype) {
    case DType::f32:
      return first_not_finite<std::uint32_t>(t, 0x7f800000U);
    case DType::bf16:
      return first_not_finite<std::uint16_t>(t, 0x7f80U);
    case DType::f16:
      return first_not_finite<std::uint16_t>(t, 0x7c00U);
    case DType::f64:
      return first_not_finite<std::uint64_t>(t, 0x7ff0000000000000ULL);
    default:
      return -1;
  }
}

}  // namespace

CapturedModel load_model(const fs::path& path, const ImportOptions& options) {
  CapturedModel model;
  model.graph_path = find_graph(path);
  model.folder = model.graph_path.parent_path();
  const Pt2Archive archive = Pt2Archive::open(model.graph_path);
  std::string wrapper;
  {
    const json::Document document = archive.graph();
    Pt2Graph imported = import_pt2(document.root(), options);
    model.graph = std::move(imported.graph);
    wrapper = std::move(imported.wrapper);
  }
  for (const fs::path& folder : {model.folder, model.folder / "hf"}) {
    if (model.config.text.empty() && fs::exists(folder / "config.json"))
      model.config = read_config(folder);
    if (model.tokenizer_path.empty() && fs::exists(folder / "tokenizer.json"))
      model.tokenizer_path = folder / "tokenizer.json";
  }
  load_weights(&model, Finder(archive, model.graph_path, std::move(wrapper)));
  return model;
}

void check_finite(const Weights& weights) {
  for (const auto& [name, tensor] : weights) {
    TensorView view = tensor;
    Tensor packed;
    if (!view.contiguous()) {
      packed = contiguous(view);
      view = static_cast<const TensorView&>(packed);
    }
    const std::int64_t at = first_not_finite(view);
    if (at < 0) continue;
    std::int64_t rest = at;
    Dims index = view.shape;
    for (int i = view.rank() - 1; i >= 0; --i) {
      index[i] = rest % view.shape[i];
      rest /= view.shape[i];
    }
    throw UserError("TK0233", cat("the weight '", name, "' is not finite: ", element(view, at),
                                  " at ", index.str()))
        .help("the checkpoint is damaged, or was converted to a dtype that cannot hold its values");
  }
}

}  // namespace tk
