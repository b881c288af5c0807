#include "timeline/page/page_tables.h"

#include <fmt/format.h>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/page/html.h"

namespace tk {

namespace {

std::string time_cell(Ns ns) {
  return number_cell(static_cast<double>(ns), show_ns(static_cast<double>(ns)));
}

std::string table(const std::string& title, const std::string& note,
                  const std::vector<std::string>& head, const std::string& rows,
                  bool filter = false) {
  std::string out = fmt::format("<div class=block><h3>{} <small>{}</small></h3>", title, note);
  if (filter) out += "<input class=filter type=search placeholder=filter aria-label=filter>";
  out += "<div class=scroll><table class=sortable><thead><tr>";
  for (const std::string& h : head) out += cat("<th>", h, "</th>");
  return out + cat("</tr></thead><tbody>", rows, "</tbody></table></div></div>\n");
}

std::string percent_bar(double part, double whole) {
  const double p = whole > 0 ? 100 * part / whole : 0;
  return fmt::format(
      "<td class=n data-v=\"{:.6g}\"><span class=meter style=\"--w:{:.1f}%\"></span>{:.1f} %</td>",
      p, p, p);
}

}  // namespace

std::string overview_tables(const PageInput& in) {
  const Timeline& t = in.timeline;
  const Overview& o = in.overview;
  const StepSummary& x = o.steps[o.step];
  std::string out =
      "<section id=overview><h2>Overview <small>of the step, whatever the model "
      "is</small></h2><div class=blocks>\n";
  std::string rows;
  for (const TimeShare& s : o.by_type)
    rows +=
        cat("<tr><td>", escaped(s.name), "</td><td>", escaped(s.core), "</td>",
            number_cell(static_cast<double>(s.count), std::to_string(s.count)), time_cell(s.sum),
            percent_bar(static_cast<double>(s.sum), static_cast<double>(x.kernel_sum)),
            time_cell(s.count ? s.sum / static_cast<Ns>(s.count) : 0), time_cell(s.low),
            time_cell(s.high), "</tr>");
  out += table("Time by type", fmt::format("{} types", o.by_type.size()),
               {"type", "core", "count", "total", "share", "mean", "min", "max"}, rows, true);
  rows.clear();
  for (const TimeShare& s : o.by_stream)
    rows += cat("<tr><td>", escaped(s.name), "</td>",
                number_cell(static_cast<double>(s.count), std::to_string(s.count)),
                time_cell(s.sum), time_cell(s.busy),
                percent_bar(static_cast<double>(s.busy), static_cast<double>(x.last - x.first)),
                "</tr>");
  out += table("Streams", "busy: union of intervals",
               {"stream", "kernels", "total", "busy", "of the step"}, rows);
  rows.clear();
  for (const TimeShare& s : o.by_core)
    rows +=
        cat("<tr><td>", escaped(s.name), "</td>",
            number_cell(static_cast<double>(s.count), std::to_string(s.count)), time_cell(s.sum),
            percent_bar(static_cast<double>(s.sum), static_cast<double>(x.kernel_sum)), "</tr>");
  out += table("Core kinds", "", {"core", "kernels", "total", "share"}, rows);
  rows.clear();
  Ns idle = 0;
  for (Ns g : o.gap_time) idle += g;
  for (std::size_t c = 0; c < bubble_classes; ++c)
    if (o.gap_count[c])
      rows +=
          cat("<tr><td>", bubble_name(static_cast<Bubble>(c)), "</td>",
              number_cell(static_cast<double>(o.gap_count[c]), std::to_string(o.gap_count[c])),
              time_cell(o.gap_time[c]),
              percent_bar(static_cast<double>(o.gap_time[c]), static_cast<double>(idle)), "</tr>");
  out += table("Nothing runs: why",
               o.has_flows ? "from the launches (flows), waits and collectives of the trace"
                           : "no flows in the profile: host gaps cannot be told",
               {"class", "gaps", "total", "share"}, rows);
  rows.clear();
  for (const HostStretch& h : o.host_bound)
    rows += cat("<tr>", time_cell(h.from - x.first), time_cell(h.to - h.from), time_cell(h.idle),
                percent_bar(static_cast<double>(h.idle), static_cast<double>(h.to - h.from)),
                number_cell(static_cast<double>(h.kernels), std::to_string(h.kernels)), "<td>",
                escaped(t.text(t.kernels[h.first].name)), "</td></tr>");
  if (!rows.empty())
    out += table("Host-bound stretches", "the host launches too late",
                 {"at", "length", "idle", "share", "kernels", "first kernel"}, rows);
  rows.clear();
  for (std::uint32_t i : o.slowest) {
    const Kernel& k = t.kernels[i];
    rows += cat("<tr>", time_cell(k.duration), "<td>", escaped(t.text(k.name)), "</td><td>",
                escaped(t.text(k.type)), "</td><td class=shapes>", escaped(t.text(k.in_shapes)),
                "</td>", time_cell(k.start - x.first),
                number_cell(k.row + 2, std::to_string(k.row + 2)), "</tr>");
  }
  out += table("Slowest kernels", "", {"duration", "name", "type", "input shapes", "at", "row"},
               rows, true);
  rows.clear();
  std::size_t shown = 0;
  for (const StepSummary& s : o.steps) {
    if (shown++ >= 2000) break;
    rows += cat("<tr", &s == &x ? " class=chosen" : "", "><td>", escaped(s.name),
                s.flagged ? " <i class=slow>off the median</i>" : "", "</td>",
                number_cell(static_cast<double>(s.kernels), std::to_string(s.kernels)),
                number_cell(static_cast<double>(s.group), std::to_string(s.group)),
                time_cell(s.stage), time_cell(s.computing), time_cell(s.exposed),
                time_cell(s.overlapped), time_cell(s.free), time_cell(s.kernel_sum), "</tr>");
  }
  out += table("Steps", "group: steps with equal kernels",
               {"step", "kernels", "group", "stage", "computing", "communication not overlapped",
                "overlapped", "free", "kernel sum"},
               rows);
  rows.clear();
  for (const StepCheck& c : o.checks)
    rows += cat("<tr><td>", escaped(c.step), "</td><td>", escaped(c.name), "</td>",
                number_cell(c.file, ns_to_us(static_cast<Ns>(c.file))),
                number_cell(c.ours, ns_to_us(static_cast<Ns>(c.ours))), "<td>",
                c.equal ? "equal" : "<i class=slow>differs</i>", "</td></tr>");
  if (!rows.empty())
    out += table("step_trace_time.csv against the kernels", "µs; equal within 0.1 % of the stage",
                 {"step", "figure", "file", "computed", ""}, rows);
  rows.clear();
  for (const RankWait& c : o.collectives)
    rows += cat("<tr><td>", escaped(c.name), "</td>", time_cell(c.elapse), time_cell(c.transit),
                time_cell(c.wait),
                percent_bar(static_cast<double>(c.wait), static_cast<double>(c.elapse)), "</tr>");
  if (!rows.empty())
    out += table("Collectives", "transfer and waiting apart, from communication.json",
                 {"collective", "elapsed", "transfer", "waiting", "waiting share"}, rows, true);
  if (in.structure.found) {
    rows.clear();
    auto unowned = [&](const std::vector<std::uint32_t>& v, const char* where) {
      for (std::uint32_t op : v) {
        const Kernel& k = t.kernels[in.ops.ops[op]];
        rows += cat("<tr><td>", where, "</td><td>", escaped(t.text(k.name)), "</td><td>",
                    escaped(t.text(k.type)), "</td><td>",
                    escaped(in.ops.stream_name(in.ops.streams[op])), "</td>", time_cell(k.duration),
                    time_cell(k.start - x.first), number_cell(k.row + 2, std::to_string(k.row + 2)),
                    "</tr>");
      }
    };
    unowned(in.structure.pre, "before");
    unowned(in.structure.between, "between");
    unowned(in.structure.post, "after");
    out += table("Kernels of no component",
                 fmt::format("before the layers {}, between {}, after {}", in.structure.pre.size(),
                             in.structure.between.size(), in.structure.post.size()),
                 {"where", "name", "type", "stream", "duration", "at", "row"}, rows, true);
  }
  if (!t.notes.empty()) {
    out += "<div class=block><h3>Notes of the reader</h3><ul>";
    for (const std::string& n : t.notes) out += cat("<li>", escaped(n), "</li>");
    out += "</ul></div>";
  }
  return out + "</div></section>\n";
}

}  // namespace tk
