#include "npu/calibrate/microbench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

using Json = nlohmann::json;

constexpr const char* script =
    R"PY("""Times kernels of an Ascend NPU for `tokamak simulate --calibrate RESULTS`.

    python microbench.py -o results.json [--device 0]

Each kernel is recorded many times in one NPUGraph and the replay is timed with events, so that
neither the host nor launches count. Weights are taken in turn from enough copies that they are not
in L2. About a minute, and 2 GB of device memory. --quick: small sizes, to try the script.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch_npu

L2_BYTES = 192 << 20
CALLS = 64
ROUNDS = 7


def graph_of(calls):
    """One replay is all calls; they are run once before, as capture asks for."""
    for call in calls:
        call()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for call in calls:
            call()
    return graph


def device_us(calls):
    """The median over rounds of the time of one call."""
    graph = graph_of(calls)
    graph.replay()
    torch.npu.synchronize()
    times = []
    for _ in range(ROUNDS):
        start = torch.npu.Event(enable_timing=True)
        end = torch.npu.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.npu.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)


def shapes(tensors):
    return ";".join(",".join(str(n) for n in t.shape) for t in tensors)


TYPES = {torch.float16: "FLOAT16", torch.bfloat16: "DT_BF16", torch.float32: "FLOAT"}


def row(kind, inputs, call, copies):
    """`copies`: lists of inputs that calls take in turn."""
    output = call(*inputs)
    result = {
        "type": kind,
        "in_shapes": shapes(inputs),
        "in_types": ";".join(TYPES[t.dtype] for t in inputs),
        "out_shapes": shapes([output]),
        "out_types": TYPES[output.dtype],
        "count": CALLS,
    }
    result["us"] = device_us([lambda i=i: call(*copies[i % len(copies)]) for i in range(CALLS)])
    return result


def products(device, scale):
    for m, n, k in [
        (1, 1024, 1024), (16, 4096, 4096), (16, 12288, 4096), (16, 4096, 12288), (64, 7168, 2048),
        (16, 65536, 2048), (256, 4096, 4096), (512, 4096, 4096), (2048, 4096, 4096),
        (4096, 4096, 4096), (4096, 8192, 4096), (128, 2048, 7168),
    ]:
        m, n, k = min(m, 4096 // scale**2), max(16, n // scale), max(16, k // scale)
        x = torch.randn(m, k, dtype=torch.bfloat16, device=device)
        number = min(CALLS, 1 + 2 * L2_BYTES // (n * k * 2)) if scale == 1 else 2
        weights = [torch.randn(k, n, dtype=torch.bfloat16, device=device) for _ in range(number)]
        yield row("MatMulV2", [x, weights[0]], torch.matmul, [[x, w] for w in weights])


def vectors(device, scale):
    for rows in (1, 16, 128, 1024, 4096)[: None if scale == 1 else 2]:
        x = torch.randn(rows, 4096 // scale, dtype=torch.bfloat16, device=device)
        y = torch.randn_like(x)
        gamma = torch.ones(4096 // scale, dtype=torch.bfloat16, device=device)
        yield row("Add", [x, y], torch.add, [[x, y]])
        yield row("Mul", [x, y], torch.mul, [[x, y]])
        yield row("RmsNorm", [x, gamma], lambda a, g: torch_npu.npu_rms_norm(a, g)[0], [[x, gamma]])
        yield row("SwiGlu", [x], lambda a: torch_npu.npu_swiglu(a, dim=-1), [[x]])


def host_us(device):
    """An operator launched by itself, and a graph of one."""
    x = torch.ones(16, device=device)
    graph = graph_of([lambda: torch.add(x, x)])
    eager, replay = [], []
    for _ in range(ROUNDS):
        torch.npu.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            torch.add(x, x)
        torch.npu.synchronize()
        eager.append((time.perf_counter() - begin) * 1e6 / CALLS)
        begin = time.perf_counter()
        graph.replay()
        torch.npu.synchronize()
        replay.append((time.perf_counter() - begin) * 1e6)
    return {"host_eager_us": statistics.median(eager), "graph_launch_us": statistics.median(replay)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="results.json")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.npu.set_device(args.device)
    device = f"npu:{args.device}"
    scale = 1
    if args.quick:
        global CALLS, ROUNDS
        scale, CALLS, ROUNDS = 32, 2, 1
    results = {
        "format": "tokamak-microbench-1",
        "device": torch.npu.get_device_name(args.device),
        "torch_npu": torch_npu.__version__,
        "emulated": "tokamak.npu" in sys.modules,
        "quick": args.quick,
        "host": host_us(device),
        "rows": [*products(device, scale), *vectors(device, scale)],
    }
    with open(args.output, "w") as file:
        json.dump(results, file, indent=1)
    print(f"{len(results['rows'])} kernels on {results['device']}: {args.output}")


if __name__ == "__main__":
    main()
)PY";

}  // namespace

std::string microbench_script() { return script; }

Microbench read_microbench(const std::string& json, const std::string& file, double l2_bytes) {
  const auto refuse = [&](const std::string& what) {
    return UserError("TK1430", cat(file, " cannot be calibrated from: ", what))
        .help("run the script that `tokamak emit microbench` writes on the NPU, without --quick");
  };
  const Json j = Json::parse(json, nullptr, false);
  if (!j.is_object() || j.value("format", Json()) != "tokamak-microbench-1")
    throw refuse("it is no result of the micro-benchmarks");
  if (j.value("emulated", Json()) != false || j.value("quick", Json()) != false)
    throw refuse("it was made by an emulation or with --quick");
  if (!j.contains("rows") || !j["rows"].is_array() || j["rows"].empty())
    throw refuse("it has no rows");
  Microbench out;
  const auto time_of = [&](const Json& row, const char* key) {
    const Json v = row.is_object() ? row.value(key, Json()) : Json();
    if (!v.is_number() || !std::isfinite(v.get<double>()) || v.get<double>() <= 0)
      throw refuse(cat("'", key, "' is no time above 0"));
    return v.get<double>();
  };
  if (j.contains("host")) {
    out.host_eager_us = time_of(j["host"], "host_eager_us");
    out.graph_launch_us = time_of(j["host"], "graph_launch_us");
  }
  for (const Json& row : j["rows"]) {
    const auto text_of = [&](const char* key) {
      const Json v = row.is_object() ? row.value(key, Json()) : Json();
      if (!v.is_string()) throw refuse(cat("a row has no text '", key, "'"));
      return v.get<std::string>();
    };
    Sample s;
    s.type = text_of("type");
    const double us = time_of(row, "us");
    ++out.samples.kernels;
    const KernelRow kernel{s.type,
                           text_of("in_shapes"),
                           text_of("in_types"),
                           text_of("out_shapes"),
                           text_of("out_types"),
                           "",
                           ""};
    if (!work_of(kernel, Core::unknown, l2_bytes, {}, &s)) {
      ++out.samples.left_out[s.type];
      continue;
    }
    s.us = us;
    s.count = 1;
    out.samples.samples.push_back(std::move(s));
  }
  return out;
}

int emit_microbench_command(int argc, char** argv) {
  std::string file;
  CLI::App app{
      "Writes a torch_npu script that times kernels of an NPU, for tokamak simulate "
      "--calibrate.\n\n"
      "  tokamak emit microbench -o microbench.py",
      argc > 0 ? argv[0] : "tokamak emit microbench"};
  app.add_option("-o,--output", file, "file to write (default: stdout)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::cout << app.help();
      return 0;
    }
    std::cerr << "error[TK1434]: " << e.what() << "\n";
    return 2;
  }
  if (file.empty() || file == "-")
    std::cout << script;
  else
    write_file(file, script);
  return 0;
}

}  // namespace tk
