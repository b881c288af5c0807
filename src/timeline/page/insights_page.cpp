#include "timeline/page/insights_page.h"

#include <fmt/format.h>

#include "base/error.h"
#include "timeline/page/html.h"
#include "timeline/page/page.h"

namespace tk {

namespace {

struct Tab {
  const char* title;
  InsightKind kind;
  std::vector<std::pair<const char*, const char*>> lists;  // list, heading
};

}  // namespace

std::string insights_page(const Insights& in, const std::string& label) {
  const Tab tabs[] = {
      {"Module Bubble",
       InsightKind::module_bubble,
       {{"persistent_module_bubbles", "Bubbles in every instance"},
        {"instance_bubble_outliers", "Single instances"}}},
      {"Operator Jitter",
       InsightKind::operator_jitter,
       {{"cluster_jitter", "Clusters"}, {"operator_jitter", "Kernels"}}},
      {"Theoretical Deviation",
       InsightKind::theoretical_deviation,
       {{"sub_item_deviation", "Sub-items"}, {"operator_deviation", "Kernels"}}},
      {"Vector Sequences",
       InsightKind::vector_sequence,
       {{"vector_sequence_candidates", "Vector kernels in a row"}}},
      {"Tensor Movement", InsightKind::tensor_movement, {{"data_movement_ops", "Families"}}},
  };
  std::string out = page_head(cat(label, " - insights"), true);
  out += cat(
      "<body><header><h1>", escaped(label),
      ": insights</h1><nav><a "
      "href=\"../index.html\">breakdown</a></nav></header><main>\n<section><h2>Conclusions</h2>");
  for (const char* level : {"high", "medium", "low"}) {
    std::string items;
    for (const Insight& x : in.all)
      if (x.confidence == level)
        items += cat("<li>", escaped(x.summary), " <small>", insight_category(x.kind), " &middot; ",
                     escaped(x.origin), "</small></li>");
    out +=
        fmt::format("<h3><span class=\"conf {0}\">{0}</span></h3>{1}", level,
                    items.empty() ? "<p class=legend>none found</p>" : cat("<ul>", items, "</ul>"));
  }
  out += "<h3>Data limits</h3><ul>";
  for (const std::string& l : in.data_limits) out += cat("<li>", escaped(l), "</li>");
  out += "</ul></section>\n<section class=tabs>";
  std::string style;
  for (std::size_t i = 0; i < std::size(tabs); ++i) {
    out += fmt::format("<input type=radio name=tab id=tab{0}{1}><label for=tab{0}>{2}</label>", i,
                       i == 0 ? " checked" : "", tabs[i].title);
    style += fmt::format("#tab{0}:checked~#pane{0}{{display:block}}", i);
  }
  out += cat("<style>", style, "</style>");
  for (std::size_t i = 0; i < std::size(tabs); ++i) {
    out += fmt::format("<div class=tab id=pane{}>", i);
    for (const auto& [list, heading] : tabs[i].lists) {
      std::string rows;
      std::size_t n = 0;
      for (const Insight& x : in.all)
        if (x.kind == tabs[i].kind && x.list == list && n++ < 5)
          rows += fmt::format(
              "<tr><td>{}<small><code>{}</code></small></td><td class=n>{:.3f} µs</td><td><span "
              "class=\"conf {}\">{}</span></td><td>{}</td><td>{}</td></tr>",
              escaped(x.title), escaped(x.key), x.amount_us, x.confidence, x.confidence,
              escaped(x.reason),
              escaped(x.direction.empty() ? x.origin : cat(x.direction, " (", x.origin, ")")));
      out += fmt::format(
          "<h3>Top5: {}</h3>{}", heading,
          rows.empty()
              ? cat("<p class=legend>none found</p>")
              : cat("<div "
                    "class=scroll><table><thead><tr><th>what</th><th>amount</th><th>confidence</"
                    "th><th>evidence</th><th>judgement</th></tr></thead><tbody>",
                    rows, "</tbody></table></div>"));
    }
    out += "</div>";
  }
  return out + "</section></main></body></html>\n";
}

}  // namespace tk
