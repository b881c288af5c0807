#include "trial/golden.h"

#include <set>

#include "base/error.h"
#include "import/safetensors.h"

namespace tk {
namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : path_(path), file_(SafeTensors::open(path)) {}

  Golden run() {
    std::set<std::string> names;
    for (const std::string& name : file_.names())
      if (const std::size_t dot = name.find('.'); dot != std::string::npos)
        names.insert(std::string(name.substr(0, dot)));
    Golden golden{path_, {}};
    for (const std::string& name : names) golden.cases.push_back(one(name));
    if (golden.cases.empty()) wrong("no tensor named <case>.input_ids");
    return golden;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    throw UserError("TK0801", cat("the golden file is not usable: ", what)).at(path_.string());
  }

  Tensor get(const std::string& name, DType dtype_wanted, bool any_float, const Dims& shape) const {
    const Tensor* t = file_.find(name);
    if (t == nullptr) wrong(cat("'", name, "' is missing"));
    if (any_float ? !is_float(t->dtype) : t->dtype != dtype_wanted)
      wrong(cat("'", name, "' is ", name_of(t->dtype)));
    if (!shape.empty() && !(t->shape == shape))
      wrong(cat("'", name, "' has shape ", t->shape.str(), ", expected ", shape.str()));
    return *t;
  }

  GoldenCase one(const std::string& name) const {
    GoldenCase c;
    c.name = name;
    c.input_ids = get(name + ".input_ids", DType::i64, false, {});
    c.logits = get(name + ".logits", DType::f32, true, {});
    if (c.input_ids.rank() != 2 || c.logits.rank() != 3)
      wrong(cat("'", name, "' needs input_ids [B, S] and logits [B, S, V]"));
    const std::int64_t batch = c.input_ids.shape[0];
    const std::int64_t vocab = c.logits.shape[2];
    if (c.logits.shape[0] != batch || c.logits.shape[1] != c.input_ids.shape[1])
      wrong(cat("'", name, ".logits' has shape ", c.logits.shape.str(), " for input_ids ",
                c.input_ids.shape.str()));
    c.decode_ids = get(name + ".decode_ids", DType::i64, false, {});
    if (c.decode_ids.rank() != 2 || c.decode_ids.shape[0] != batch)
      wrong(cat("'", name, ".decode_ids' has shape ", c.decode_ids.shape.str()));
    c.decode_logits =
        get(name + ".decode_logits", DType::f32, true, {batch, c.decode_ids.shape[1], vocab});
    if (file_.find(name + ".logits_fp32") != nullptr)
      c.logits_fp32 = get(name + ".logits_fp32", DType::f32, false, c.logits.shape);
    return c;
  }

  std::filesystem::path path_;
  SafeTensors file_;
};

}  // namespace

Golden read_golden(const std::filesystem::path& path) { return Reader(path).run(); }

}  // namespace tk
