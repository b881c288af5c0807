#include "report/page.h"

namespace tk {

const std::string_view page_css = R"css(
:root { --bg:#f6f7f9; --panel:#fff; --ink:#1b1f27; --soft:#5c6675; --line:#d9dee6; --accent:#2f6fde; --good:#1c8a4c; --bad:#c8352b; --amber:#8a6100; color-scheme:light; }
:root[data-theme=dark] { --bg:#12151b; --panel:#1a1f28; --ink:#e4e8ef; --soft:#96a1b2; --line:#2c3440; --accent:#6ea2ff; --good:#5fd08e; --bad:#ff7a6e; --amber:#e6b95c; color-scheme:dark; }
@media (prefers-color-scheme:dark) { :root:not([data-theme=light]) { --bg:#12151b; --panel:#1a1f28; --ink:#e4e8ef; --soft:#96a1b2; --line:#2c3440; --accent:#6ea2ff; --good:#5fd08e; --bad:#ff7a6e; --amber:#e6b95c; color-scheme:dark; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--bg); color:var(--ink); font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif; }
header { position:sticky; top:0; z-index:5; display:flex; gap:14px; align-items:baseline; padding:10px 24px; background:var(--panel); border-bottom:1px solid var(--line); }
h1 { font-size:17px; margin:0; } h2 { font-size:15px; margin:0 0 8px; } h3 { font-size:13px; margin:0 0 6px; } small { color:var(--soft); font-weight:400; }
.where { color:var(--soft); flex:1; } button,input { font:inherit; color:inherit; background:var(--bg); border:1px solid var(--line); border-radius:5px; padding:4px 10px; }
button { cursor:pointer; } button:focus-visible,input:focus-visible { outline:2px solid var(--accent); outline-offset:1px; }
main { padding:16px 24px 60px; max-width:1900px; margin:auto; } .lead { font-size:15px; max-width:1100px; } .note { color:var(--soft); margin:0 0 10px; }
section { background:var(--panel); border:1px solid var(--line); border-radius:8px; padding:14px 16px; margin:0 0 16px; }
.cards { display:flex; flex-wrap:wrap; gap:12px; margin:0 0 16px; } .card { flex:1 1 170px; background:var(--panel); border:1px solid var(--line); border-radius:8px; padding:10px 14px; }
.card span,.card small { display:block; color:var(--soft); font-size:12px; } .card b { font-size:22px; font-weight:600; font-variant-numeric:tabular-nums; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; } th,td { text-align:left; padding:5px 10px; border-bottom:1px solid var(--line); vertical-align:top; }
thead th { color:var(--soft); font-size:12px; font-weight:600; white-space:nowrap; } .sortable thead th { cursor:pointer; } th.asc::after { content:" \25B2"; } th.desc::after { content:" \25BC"; }
tbody th { font-weight:600; white-space:nowrap; } td.n,th.n { text-align:right; white-space:nowrap; } td small { display:block; font-size:11px; overflow-wrap:anywhere; }
.scroll { overflow:auto; } th.why { min-width:260px; } #trials td:nth-child(4) { min-width:190px; max-width:300px; overflow-wrap:anywhere; } #filter { width:260px; margin:0 0 8px; }
.tag { padding:1px 9px; border-radius:9px; border:1px solid; font-size:12px; white-space:nowrap; } .tag.kept { color:var(--good); } .tag.back { color:var(--bad); } .tag.none, .tag.pending { color:var(--soft); }
tr.none td { color:var(--soft); } .good { color:var(--good); } .bad { color:var(--bad); }
.two { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(560px,100%),1fr)); gap:24px; } .bars td.bar { width:55%; } .bars i { display:block; height:14px; margin-top:3px; border-radius:3px; background:var(--accent); min-width:2px; }
.step { width:100%; height:64px; display:block; border:1px solid var(--line); border-radius:6px; margin:0 0 10px; } .dot { display:inline-block; width:10px; height:10px; border-radius:2px; margin-right:7px; }
.c0 { fill:#3b7dd8; background:#3b7dd8; } .c1 { fill:#e08a2e; background:#e08a2e; } .c2 { fill:#3aa676; background:#3aa676; } .c3 { fill:#a25ddc; background:#a25ddc; } .c4 { fill:#d64f6d; background:#d64f6d; }
.c5 { fill:#2ba6b8; background:#2ba6b8; } .c6 { fill:#8a8f2b; background:#8a8f2b; } .c7 { fill:#7a6ff0; background:#7a6ff0; } .c8 { fill:#8b94a3; background:#8b94a3; }
footer { color:var(--soft); } @media print { header { position:static; } }
)css";

const std::string_view page_js = R"js(
const root = document.documentElement;
try { const t = localStorage.getItem('tk-theme'); if (t) root.dataset.theme = t; } catch (e) { /* storage may be off */ }
document.getElementById('theme').onclick = () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme:dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  try { localStorage.setItem('tk-theme', root.dataset.theme); } catch (e) { /* storage may be off */ }
};
const value = cell => cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent;
for (const table of document.querySelectorAll('.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    head.tabIndex = 0;
    const sort = () => {
      const up = !head.classList.contains('asc');
      heads.forEach(h => h.classList.remove('asc', 'desc'));
      head.classList.add(up ? 'asc' : 'desc');
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a.cells[i]), y = value(b.cells[i]);
        return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
      });
      table.tBodies[0].append(...rows);
    };
    head.onclick = sort;
    head.onkeydown = e => { if (e.key === 'Enter') sort(); };
  });
}
const filter = document.getElementById('filter');
if (filter) filter.oninput = () => {
  const words = filter.value.toLowerCase().split(' ').filter(Boolean);
  for (const row of document.querySelector('#trials tbody').rows)
    row.hidden = !words.every(w => row.textContent.toLowerCase().includes(w));
};
)js";

}  // namespace tk
