// A .pt2 file: the zip archive that torch.export.save writes. Everything lies in one folder of it:
//   NAME/models/model.json                          the graph
//   NAME/data/weights/model_weights_config.json     name of a weight -> its record and type
//   NAME/data/weights/weight_7                      a record: the bytes of a tensor
//   NAME/data/constants/...                         the same for constants
#pragma once

#include <filesystem>
#include <string>

#include "graph/weights.h"
#include "import/json.h"
#include "import/zip.h"

namespace tk {

class Pt2Archive {
 public:
  // Throws TK0201 (a zip archive without models/model.json, or of another byte order) and the
  // errors of Zip.
  static Pt2Archive open(const std::filesystem::path& path);
  static Pt2Archive of(Zip zip);

  json::Document graph() const;
  // Weights and constants, in place where the archive stores them aligned for their dtype. Those
  // whose records have no bytes are left out. Throws TK0208: a record is missing, its size is not
  // that of its type, or it is a pickle.
  Weights weights() const;

 private:
  explicit Pt2Archive(Zip zip) : zip_(std::move(zip)) {}
  void add_weights(const std::string& folder, const std::string& config, Weights* out) const;

  Zip zip_;
  std::string folder_;  // "NAME/"
};

}  // namespace tk
