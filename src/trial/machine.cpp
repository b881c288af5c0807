#include "trial/machine.h"

#include "base/file.h"

namespace tk {

std::string cpu_name() {
  const std::string text = read_file("/proc/cpuinfo");
  const std::size_t at = text.find("model name");
  if (at == std::string::npos) return "unknown";
  const std::size_t colon = text.find(':', at);
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

}  // namespace tk
