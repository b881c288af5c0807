#include "timeline/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/page/assets.h"
#include "timeline/page/html.h"
#include "timeline/page/page_data.h"
#include "timeline/page/page_tables.h"

namespace tk {

namespace {

// Reference of a row: its median, or the median of what is not 0 (BD-103).
double reference(const SubItem& item) {
  if (item.series.median > 0) return item.series.median;
  std::vector<double> v;
  for (Ns x : item.per_instance)
    if (x > 0) v.push_back(static_cast<double>(x));
  return median_of(v);
}

// What stands on the chips of one row, per instance.
struct RowMarks {
  std::vector<int> slow, fast, extra, missing;
  std::vector<bool> outlier, opens;
};

RowMarks marks_of(const PageInput& in, const SubItem& item) {
  const std::size_t n = item.per_instance.size();
  RowMarks m;
  for (auto* v : {&m.slow, &m.fast, &m.extra, &m.missing}) v->assign(n, 0);
  m.outlier.assign(n, false);
  m.opens.assign(n, false);
  for (std::size_t i : item.outliers) m.outlier[i] = true;
  for (const KernelOutlier& o : item.kernel_outliers)
    ++(static_cast<double>(o.duration) > o.baseline ? m.slow : m.fast)[o.instance];
  for (const CountAnomaly& a : item.count_anomalies)
    (a.count > a.usual ? m.extra : m.missing)[a.instance] += std::abs(a.count - a.usual);
  if (!item.bubble && in.timeline.table)
    for (const OpRecord& r : item.records) m.opens[r.instance] = true;
  return m;
}

// At most this many chips stand in a row: a page of a few layers has all, one of thousands of
// passes its outliers and a sample in equal steps.
constexpr std::size_t most_chips = 96;

std::vector<std::size_t> shown_instances(const RowMarks& m) {
  const std::size_t n = m.outlier.size();
  std::vector<bool> take(n, n <= most_chips);
  if (n > most_chips) {
    std::size_t left = most_chips;
    for (std::size_t i = 0; i < n && left > most_chips / 4; ++i)
      if (m.outlier[i]) {
        take[i] = true;
        --left;
      }
    for (std::size_t i = 0; i < n; i += n / left + 1) take[i] = true;
  }
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < n; ++i)
    if (take[i]) out.push_back(i);
  return out;
}

std::string chip(const PageInput& in, const Section& s, std::size_t section, const SubItem& item,
                 std::size_t number, std::size_t i, double median, const RowMarks& row,
                 bool phase_change) {
  const Component& c = in.structure.components[s.instances[i]];
  const double v = static_cast<double>(item.per_instance[i]);
  const double high = std::max(1.0, item.series.high);
  const double off = median > 0 ? (v - median) / median : 0;
  std::string classes = "chip";
  std::string deviation;
  if (row.outlier[i]) {
    const double size = std::fabs(off);
    classes += cat(off >= 0 ? " slow" : " fast", size >= 0.5 ? " t3" : size >= 0.2 ? " t2" : " t1");
    deviation = fmt::format(" vs median {} ({:+.0f}%)", show_ns(median), 100 * off);
  }
  if (phase_change) classes += " phase";
  std::string marks;
  auto mark = [&](int n, const char* what) {
    if (n) marks += fmt::format("<i class={0}>{1} {0}</i>", what, n);
  };
  mark(row.slow[i], "slow");
  mark(row.fast[i], "fast");
  mark(row.extra[i], "extra");
  mark(row.missing[i], "missing");
  const std::string label =
      c.phase == "main" ? cat('#', c.layer) : cat(escaped(c.phase), '#', c.layer);
  const std::string inside =
      fmt::format("<b style=\"--w:{:.1f}%\"></b><span>{}</span><em>{}{}</em>{}", 100 * v / high,
                  label, show_ns(v), deviation, marks);
  if (!row.opens[i])
    return fmt::format("<div class=\"{}\"><div class=face>{}</div></div>", classes, inside);
  return fmt::format(
      "<details class=\"{}\" data-s={} data-i={} data-n={}><summary "
      "class=face>{}</summary></details>",
      classes, section, number, i, inside);
}

std::string in_words(std::string category) {  // theoretical_deviation
  std::replace(category.begin(), category.end(), '_', ' ');
  return category;
}

std::string insight_cell(const PageInput& in, const std::string& type, const std::string& item) {
  std::string out;
  for (const char* confidence : {"high", "medium"})
    for (const RowInsight& r : in.insights) {
      if (r.type != type || r.item != item || r.confidence != confidence) continue;
      out += fmt::format(
          "<div class=insight><span class=\"conf {0}\">{0}</span> <b>{1}</b> "
          "{2}<small>{3}{4}</small></div>",
          r.confidence, escaped(in_words(r.category)), escaped(r.summary), escaped(r.evidence),
          r.note.empty() ? "" : cat(" &middot; ", escaped(r.note)));
    }
  return out;
}

std::string theory_cell(const SubItem& item) {
  if (!item.theory || !item.theory->median_us) return "<td class=n>&mdash;</td>";
  const TheorySummary& x = *item.theory;
  std::string notes;
  if (*x.median_us > 0)
    notes +=
        fmt::format("<small>wall/theory {:.2f}x</small>", item.series.median / 1e3 / *x.median_us);
  if (x.supported < x.per_instance.size())
    notes += fmt::format("<small>{}/{} inst</small>", x.supported, x.per_instance.size());
  if (x.review) notes += fmt::format("<small>{} review</small>", x.review);
  if (x.multi_stream) notes += fmt::format("<small>multi-stream {} inst</small>", x.multi_stream);
  for (std::size_t i = 0; i < x.notes.size() && i < 2; ++i)
    notes += cat("<small>", escaped(x.notes[i]), "</small>");
  if (x.notes.size() > 2) notes += fmt::format("<small>+{} notes</small>", x.notes.size() - 2);
  if (x.unsupported_kernels)
    notes += fmt::format("<small>{} unsupported</small>", x.unsupported_kernels);
  return cat("<td class=\"n theory\">", show_ns(*x.median_us * 1e3), notes, "</td>");
}

std::string section_html(const PageInput& in, std::size_t number) {
  const Section& s = in.metrics->sections[number];
  std::string out = fmt::format(
      "<section class=component id=\"type-{0}\"><h2>{0} <small>{1} instances &middot; median "
      "{2}</small></h2>\n",
      escaped(s.type), s.instances.size(), show_ns(s.total.series.median));
  if (s.coverage && *s.coverage < 80)
    out += fmt::format(
        "<p class=\"panel red\">The clusters cover {:.0f} % of TOTAL (limit 80 %): time is lost "
        "between clusters, or rules are missing.</p>",
        std::floor(*s.coverage));
  for (const DisplacedStream& d : s.displaced)
    out += fmt::format(
        "<p class=\"panel blue\">Stream {} runs away from this block: {} kernels, median wall {} "
        "({:.1f} % of TOTAL); excluded from TOTAL and bubble, still part of the component, see "
        "splits.</p>",
        escaped(in.ops.stream_name(d.stream)), d.ops, show_ns(d.median_wall), d.percent);
  std::string pairs;
  for (const OverlapPair& p : s.pairs)
    if (p.median >= 1000)
      pairs += fmt::format("<li>{} and {}: {} ({:.1f} %)</li>", escaped(p.a), escaped(p.b),
                           show_ns(p.median), p.percent);
  if (s.gap_percent >= 5)
    out += fmt::format(
        "<div class=\"panel amber\">Clusters overlap: {} ({:.1f} % of TOTAL) is counted more than "
        "once in the rows.<ul>{}</ul></div>",
        show_ns(s.median_gap), s.gap_percent, pairs);
  else if (s.gap_percent > 0 && !pairs.empty())
    out += fmt::format(
        "<div class=\"panel blue\">Clusters overlap a little: {} ({:.1f} % of "
        "TOTAL).<ul>{}</ul></div>",
        show_ns(s.median_gap), s.gap_percent, pairs);
  if (!s.has_rules)
    out += fmt::format(
        "<p class=\"panel blue\">No rules for this type: {} kernels, bubble and TOTAL only.</p>",
        s.unruled.empty() ? 0 : s.unruled.front().second);
  else if (!s.unruled.empty()) {
    std::string names;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < s.unruled.size(); ++i) {
      sum += s.unruled[i].second;
      if (i < 20)
        names += cat(i ? ", " : "", escaped(s.unruled[i].first), " &times;", s.unruled[i].second);
    }
    out += fmt::format("<p class=\"panel amber\">{} kernels of this type match no rule: {}</p>",
                       sum, names);
  }
  out +=
      "<div class=scroll><table "
      "class=breakdown><thead><tr><th>sub-item</th><th>median</th><th>share</th><th>theory</"
      "th><th>per instance</th><th>insight</th></tr></thead><tbody>\n";
  auto row = [&](const SubItem& item, std::size_t index) {
    const double median = reference(item);
    std::string chips;
    std::string phase;
    const RowMarks marks = marks_of(in, item);
    const std::vector<std::size_t> shown = shown_instances(marks);
    for (std::size_t i : shown) {
      const Component& c = in.structure.components[s.instances[i]];
      chips +=
          chip(in, s, number, item, index, i, median, marks, !phase.empty() && c.phase != phase);
      phase = c.phase;
    }
    if (shown.size() < item.per_instance.size())
      chips += fmt::format("<small>{} of {} instances: outliers first, then in equal steps</small>",
                           shown.size(), item.per_instance.size());
    const double share =
        s.total.series.median > 0 ? 100 * item.series.median / s.total.series.median : 0;
    out += fmt::format(
        "<tr class=\"{}\"><th>{}<small>{}</small></th><td class=n>{}<small>&sigma; "
        "{}</small></td><td class=n><span class=meter style=\"--w:{:.0f}%\"></span>{:.1f} "
        "%</td>{}<td class=chips><div class=box>{}</div></td><td>{}</td></tr>\n",
        item.bubble            ? "bubble"
        : item.name == "TOTAL" ? "total"
                               : "cluster",
        escaped(item.name), escaped(item.description), show_ns(item.series.median),
        show_ns(item.series.std), std::min(100.0, share), share, theory_cell(item), chips,
        insight_cell(in, s.type, item.name));
  };
  for (std::size_t i = 0; i < s.items.size(); ++i) row(s.items[i], i);
  row(s.total, s.items.size());
  out += "</tbody></table></div></section>\n";
  return out;
}

// One bar per layer, stacked by block: readable without a script.
std::string layer_bars(const PageInput& in) {
  const auto& components = in.structure.components;
  if (components.empty()) return {};
  struct Bar {
    std::string name;
    std::vector<std::pair<std::string, Ns>> parts;
    Ns sum = 0;
  };
  std::vector<Bar> bars;
  std::map<std::pair<std::string, int>, std::size_t> at;
  for (const Section& s : in.metrics->sections)
    for (std::size_t i = 0; i < s.instances.size(); ++i) {
      const Component& c = components[s.instances[i]];
      at.emplace(std::pair(c.phase, c.layer), 0);
    }
  int last = -1;
  for (const Component& c : components)
    if (c.layer != last) {
      last = c.layer;
      at[{c.phase, c.layer}] = bars.size();
      bars.push_back(
          {c.phase == "main" ? cat("layer ", c.layer) : cat(c.phase, " layer ", c.layer), {}, 0});
    }
  std::vector<std::string> types;
  std::vector<std::vector<std::pair<std::size_t, Ns>>> order(bars.size());
  std::map<std::size_t, Ns> total_of;
  for (const Section& s : in.metrics->sections)
    for (std::size_t i = 0; i < s.instances.size(); ++i)
      total_of[s.instances[i]] = s.total.per_instance[i];
  for (std::size_t c = 0; c < components.size(); ++c) {
    Bar& bar = bars[at[{components[c].phase, components[c].layer}]];
    bar.parts.emplace_back(components[c].type, total_of[c]);
    bar.sum += total_of[c];
    if (std::find(types.begin(), types.end(), components[c].type) == types.end())
      types.push_back(components[c].type);
  }
  Ns high = 1;
  for (const Bar& b : bars) high = std::max(high, b.sum);
  std::string out =
      "<section id=layers><h2>Layers <small>TOTAL per block, one bar a layer</small></h2><p "
      "class=legend>";
  for (std::size_t i = 0; i < types.size(); ++i)
    out += fmt::format("<span><i class=\"k{0}\"></i><a href=\"#type-{1}\">{1}</a></span>", i % 8,
                       escaped(types[i]));
  constexpr std::size_t most_bars = 800, most_apart = 200;
  const std::size_t stride = bars.size() / most_bars + 1;
  out += cat("</p><div class=\"bars", bars.size() > most_apart ? " dense" : "", "\">");
  for (std::size_t n = 0; n < bars.size(); n += stride) {
    const Bar& b = bars[n];
    std::string title = escaped(b.name), parts;
    for (const auto& [type, ns] : b.parts) {
      const std::size_t i =
          static_cast<std::size_t>(std::find(types.begin(), types.end(), type) - types.begin());
      parts += fmt::format("<i class=\"k{}\" style=\"height:{:.2f}%\"></i>", i % 8,
                           100.0 * static_cast<double>(ns) / static_cast<double>(high));
      title += cat("&#10;", escaped(type), ' ', show_ns(static_cast<double>(ns)));
    }
    out += cat("<div class=bar title=\"", title, "\">", parts, "</div>");
  }
  out += "</div></section>\n";
  return out;
}

std::string cards(const PageInput& in) {
  const StepSummary& x = in.overview.steps[in.overview.step];
  const double span = std::max(1.0, static_cast<double>(x.last - x.first));
  std::string out = "<div class=cards>";
  auto card = [&](const std::string& name, const std::string& value, const std::string& note,
                  double share, const char* kind) {
    out += fmt::format(
        "<div class=\"card {}\"><span>{}</span><b>{}</b><small>{}</small>{}</div>", kind, name,
        value, note,
        share >= 0 ? fmt::format("<u style=\"--w:{:.1f}%\"></u>", 100 * std::min(1.0, share)) : "");
  };
  auto share = [&](Ns ns) { return static_cast<double>(ns) / span; };
  card("step", show_ns(span), fmt::format("{} kernels", in.ops.size()), -1, "plain");
  card("computing", show_ns(static_cast<double>(x.computing)),
       fmt::format("{:.1f} %", 100 * share(x.computing)), share(x.computing), "compute");
  card("communication, exposed", show_ns(static_cast<double>(x.exposed)),
       fmt::format("{} overlapped", show_ns(static_cast<double>(x.overlapped))), share(x.exposed),
       "comm");
  card("free", show_ns(static_cast<double>(x.free)), fmt::format("{:.1f} %", 100 * share(x.free)),
       share(x.free), "free");
  std::size_t worst = 0;
  for (std::size_t c = 1; c < bubble_classes; ++c)
    if (in.overview.gap_time[c] > in.overview.gap_time[worst]) worst = c;
  if (in.overview.gap_time[worst] > 0)
    card("largest cause of free time", std::string(bubble_name(static_cast<Bubble>(worst))),
         fmt::format("{} in {} gaps", show_ns(static_cast<double>(in.overview.gap_time[worst])),
                     in.overview.gap_count[worst]),
         share(in.overview.gap_time[worst]), "free");
  if (in.structure.found) {
    int layers = 0;
    std::string names;
    for (const Phase& p : in.structure.phases) {
      layers += p.layers;
      if (in.structure.phases.size() > 1)
        names += cat(names.empty() ? "" : ", ", escaped(p.name), ' ', p.layers);
    }
    card("layers", std::to_string(layers), names.empty() ? escaped(in.structure.hint) : names, -1,
         "plain");
  }
  return out + "</div>\n";
}

}  // namespace

std::string page_style() { return std::string(profile_css); }

std::string page_head(const std::string& title, bool script) {
  return cat(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width\">\n<title>",
      escaped(title), "</title>\n<style>\n", profile_css, "</style>\n",
      script ? cat("<script>", theme_js, "</script>\n") : std::string(), "</head>\n");
}

std::string profile_page(const PageInput& in) {
  const Timeline& t = in.timeline;
  const StepSummary& x = in.overview.steps[in.overview.step];
  std::string out = page_head(cat(in.label, " - profile"), true);
  std::string origin = t.origin.kind;
  if (!t.origin.detail.empty()) origin += cat(": ", t.origin.detail);
  out += fmt::format(
      "<body><header><h1>{}</h1><span class=\"badge {}\">{}</span><nav>{}<a "
      "href=#timeline>timeline</a>{}<a href=#overview>overview</a>"
      "<a href=#kernels>kernels</a></nav><input id=search type=search placeholder=\"search kernels "
      "( / )\" autocomplete=off aria-label=\"search kernels\">"
      "<span id=hits></span><button id=theme title=\"light or dark (t)\">&#9680;</button><button "
      "id=help title=\"keys (?)\">?</button></header><main>\n",
      escaped(in.label), escaped(t.origin.kind), escaped(origin),
      in.insights_page ? "<a href=\"insights/index.html\">insights</a>" : "",
      in.structure.found ? "<a href=#layers>layers</a>" : "");
  out += fmt::format(
      "<p class=facts>step <b>{}</b> ({}) &middot; stage <b>{}</b> &middot; rank <b>{}</b> "
      "&middot; {} {} &middot; outliers {} {:g} &middot; structure {} &middot; rules {}{}</p>\n",
      escaped(x.name), escaped(in.step_origin), escaped(in.stage.empty() ? "unknown" : in.stage),
      escaped(in.rank), escaped(t.info.level.empty() ? "level unknown" : t.info.level),
      escaped(t.info.metrics), in.metrics && in.metrics->outlier.z ? "z" : "iqr",
      in.metrics ? in.metrics->outlier.k : 1.5,
      escaped(in.structure.found ? in.structure.origin : "none"), escaped(in.rules_origin),
      in.theory_source.empty() ? "" : cat(" &middot; theory ", escaped(in.theory_source)));
  for (const std::string& w : in.warnings)
    out += cat("<p class=\"panel amber\">", escaped(w), "</p>\n");
  if (!in.structure.found && !in.structure.reason.empty())
    out += cat("<p class=\"panel blue\">No layers: ", escaped(in.structure.reason),
               ". The overview below needs none.</p>\n");
  out += cards(in);
  out +=
      "<section id=timeline><h2>Timeline <small id=range></small></h2><div id=view><noscript>The "
      "timeline needs JavaScript; all tables below do "
      "not.<style>#canvas{display:none}</style></noscript>"
      "<canvas id=canvas tabindex=0 aria-label=\"timeline of the step: streams as "
      "tracks\"></canvas><div id=tip hidden></div></div><div id=detail></div></section>\n";
  if (in.metrics) {
    out += layer_bars(in);
    out +=
        "<p class=legend><b>wall</b> union of the kernels' intervals &middot; <b>bubble</b> TOTAL "
        "less that union &middot; <b>TOTAL</b> last end less first start &middot; chips: bar = "
        "value / largest of the row, "
        "<i class=\"sw slow\"></i>slow and <i class=\"sw fast\"></i>fast outliers come first; "
        "click one for "
        "its kernels</p>\n";
    for (std::size_t i = 0; i < in.metrics->sections.size(); ++i) out += section_html(in, i);
  }
  out += overview_tables(in);
  out +=
      "<section id=kernels><h2>Kernels <small>all of the step; click a column to "
      "sort</small></h2><div id=grid><noscript>This table needs JavaScript. The same rows are in "
      "raw_ops_details.json.</noscript></div></section>\n";
  out += "</main>\n";
  out += page_data(in);
  out += cat("<script>\n", profile_js, "</script>\n</body></html>\n");
  return out;
}

}  // namespace tk
