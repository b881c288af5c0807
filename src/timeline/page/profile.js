'use strict';
(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('tk-data').textContent);
  const n = data.n;
  const show = ns => ns < 1e6 ? (ns / 1e3).toFixed(1) + ' µs' : ns < 1e9 ? (ns / 1e6).toFixed(3) + ' ms' : (ns / 1e9).toFixed(3) + ' s';
  const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };

  async function inflate(id) {
    const element = $(id);
    const text = atob(element.textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
    return new Response(stream).arrayBuffer();
  }
  const columnCache = new Map();
  function column(c) {  // promise of the texts of one CSV column, one per kernel
    if (!columnCache.has(c)) columnCache.set(c, inflate('tk-col-' + c).then(b => new TextDecoder().decode(b).split('\n')));
    return columnCache.get(c);
  }

  let K = null;  // the numbers: start, duration, ids
  async function load() {
    const buffer = await inflate('tk-numbers');
    let at = 0;
    const take = (T, size) => { const v = new T(buffer, at, n); at += n * size; return v; };
    K = {start: take(Float64Array, 8), dur: take(Float64Array, 8)};
    for (const k of ['name', 'type', 'core', 'ins', 'outs', 'row']) K[k] = take(Uint32Array, 4);
    K.owner = take(Int32Array, 4); K.track = take(Int32Array, 4); K.role = take(Uint8Array, 1);
    K.byTrack = data.tracks.map(() => []);
    const order = Array.from({length: n}, (_, i) => i).sort((a, b) => K.start[a] - K.start[b] || a - b);
    for (const i of order) K.byTrack[K.track[i]].push(i);
    K.order = order;
    K.lanes = K.byTrack.map(list => ({list, longest: list.reduce((m, i) => Math.max(m, K.dur[i]), 0)}));
  }
  const T = id => data.texts[id];

  // ---- theme, help, keys -------------------------------------------------------------------------
  const dark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme:dark)').matches;
  const toggleTheme = () => {
    document.documentElement.dataset.theme = dark() ? 'light' : 'dark';
    try { localStorage.setItem('tk-theme', document.documentElement.dataset.theme); } catch (e) { /* storage may be off */ }
    draw();
  };
  $('theme').onclick = toggleTheme;
  const helpBox = make('dialog');
  helpBox.append(make('h3', '', 'Keys'));
  const keyTable = make('table');
  for (const [k, what] of [['wheel', 'zoom at the pointer'], ['drag', 'pan'], ['shift drag', 'zoom to the stretch'], ['w s', 'zoom in, out'], ['a d', 'pan'], ['f', 'whole step'],
    ['← →', 'previous, next kernel of the stream'], ['↑ ↓', 'other stream'], ['/', 'search'], ['Enter', 'next hit'], ['Esc', 'clear'], ['t', 'light or dark'], ['?', 'this']]) {
    const r = keyTable.insertRow(); r.insertCell().textContent = k; r.insertCell().textContent = what;
  }
  helpBox.append(keyTable); document.body.append(helpBox);
  helpBox.onclick = () => helpBox.close();
  $('help').onclick = () => helpBox.showModal();

  // ---- timeline ----------------------------------------------------------------------------------
  const canvas = $('canvas'), tip = $('tip'), g = canvas.getContext('2d');
  const palette = ['#3b7dd8', '#2ba6b8', '#5b8def', '#7a6ff0', '#8a8f2b', '#c79a3a', '#3aa676', '#d67fb0', '#d64f6d', '#e0664f',
    '#e08a2e', '#a25ddc', '#6f9c3d', '#d9a13a', '#b765d8', '#4fb0e0', '#8b95a5', '#6fae9a', '#7d8794'];
  const gapNames = ['host', 'event wait', 'engine switch', 'collective wait', 'unknown'];
  const gapColors = ['#d99a2b', '#c46ad0', '#7a8aa5', '#b765d8', '#9aa3af'];
  const left = 118, top0 = 22, bandHeight = 20, gapHeight = 8;
  let from = 0, to = data.span || 1, width = 0, height = 0, rowHeight = 22, selected = -1, hits = null, hitList = [], hitAt = -1, dirty = false;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function resize() {
    const ratio = devicePixelRatio || 1;
    width = canvas.clientWidth;
    height = Math.max(150, Math.min(620, top0 + bandHeight + gapHeight + 10 + data.tracks.length * rowHeight));
    canvas.style.height = height + 'px';
    canvas.width = width * ratio; canvas.height = height * ratio;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }
  const x = t => left + (t - from) / (to - from) * (width - left);
  const time = px => from + (px - left) / (width - left) * (to - from);
  const trackTop = k => top0 + bandHeight + gapHeight + 6 + k * rowHeight;
  const firstAfter = (list, t, get) => { let a = 0, b = list.length; while (a < b) { const m = (a + b) >> 1; if (get(list[m]) < t) a = m + 1; else b = m; } return a; };
  function draw() {
    if (dirty) return;
    dirty = true;
    requestAnimationFrame(() => { dirty = false; paint(); });
  }
  function paint() {
    if (!width) return;
    const ink = css('--ink'), soft = css('--soft'), line = css('--line'), panel = css('--panel');
    g.fillStyle = panel; g.fillRect(0, 0, width, height);
    g.font = '11px system-ui,sans-serif'; g.textBaseline = 'middle';
    const pixels = width - left, step = Math.pow(10, Math.ceil(Math.log10((to - from) / pixels * 90)));
    const tick = [0.2, 0.5, 1].map(f => f * step).find(s => s / (to - from) * pixels >= 80) || step;
    g.strokeStyle = line; g.fillStyle = soft;
    for (let t = Math.ceil(from / tick) * tick; t < to; t += tick) {
      const px = Math.round(x(t)) + .5;
      g.beginPath(); g.moveTo(px, top0 - 6); g.lineTo(px, height); g.stroke();
      if (px + 3 + g.measureText(show(t)).width <= width) g.fillText(show(t), px + 3, 9);
    }
    g.save(); g.beginPath(); g.rect(left, 0, pixels, height); g.clip();
    data.components.forEach(([type, phase, layer, a, b], i) => {
      if (b < from || a > to) return;
      const px = x(a), w = Math.max(1, x(b) - px);
      g.fillStyle = palette[kinds.indexOf(type) * 5 % palette.length] + (layer % 2 ? '66' : '99');
      g.fillRect(px, top0, w, bandHeight - 3);
      if (w > 46) { g.fillStyle = ink; g.fillText((phase === 'main' ? '' : phase + ' ') + layer + ' ' + type, px + 4, top0 + 8, w - 6); }
    });
    let lastGap = -1;
    for (const [a, b, kind] of data.gaps) {
      if (b < from || a > to) continue;
      const px = x(a), w = Math.max(1, x(b) - px);
      if (px + w < lastGap + .5) continue;
      lastGap = px + w;
      g.fillStyle = gapColors[kind]; g.fillRect(px, top0 + bandHeight, w, gapHeight - 3);
    }
    if (K) for (let k = 0; k < K.lanes.length; ++k) {
      const {list, longest} = K.lanes[k], y = trackTop(k);
      if (y > height) break;
      // Kernels under a pixel: of each pixel the share of each role, or of the hits alone.
      let at = -1, busy = 0, found = false, shares = new Float64Array(palette.length);
      const flush = () => {
        if (busy > 0) {
          g.globalAlpha = hits && !found ? .22 : 1;
          let top = y;
          for (let r = 0; r < shares.length; ++r) if (shares[r] > 0) { const h = shares[r] / busy * (rowHeight - 4); g.fillStyle = palette[r]; g.fillRect(at, top, 1, h); top += h; }
          shares.fill(0);
        }
        busy = 0; found = false;
      };
      for (let i = firstAfter(list, from - longest, j => K.start[j]); i < list.length; ++i) {
        const op = list[i], a = K.start[op];
        if (a > to) break;
        const px = x(a), end = px + K.dur[op] / (to - from) * pixels;
        if (end < left) continue;
        const hit = hits && hits[op];
        if (end - px < 1 && op !== selected) {
          if (Math.floor(px) !== at) { flush(); at = Math.floor(px); }
          if (hit && !found) { shares.fill(0); busy = 0; found = true; }
          if (hits && found && !hit) continue;
          const weight = K.dur[op] || 1;
          shares[K.role[op]] += weight; busy += weight;
          continue;
        }
        g.globalAlpha = hits && !hit ? .22 : 1;
        g.fillStyle = palette[K.role[op]]; g.fillRect(px, y, Math.max(.8, end - px - (end - px > 3 ? 1 : 0)), rowHeight - 4);
        if (end - px > 40) { g.globalAlpha = 1; g.fillStyle = '#fff'; g.fillText(T(K.type[op]), Math.max(px, left) + 4, y + 9, end - Math.max(px, left) - 8); }
        if (op === selected) { g.globalAlpha = 1; g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(px, y, Math.max(2, end - px), rowHeight - 4); g.lineWidth = 1; }
      }
      flush();
      g.globalAlpha = 1;
    }
    g.restore();
    g.fillStyle = soft; g.textAlign = 'right';
    if (data.components.length) g.fillText('layers', left - 8, top0 + 8);
    data.tracks.forEach((t, k) => { if (trackTop(k) < height) { g.fillStyle = ink; g.fillText(t.length > 17 ? t.slice(0, 16) + '…' : t, left - 8, trackTop(k) + 9); } });
    g.textAlign = 'left';
    if (drag && drag.select) { g.fillStyle = css('--accent') + '33'; g.fillRect(Math.min(drag.x0, drag.x1), 0, Math.abs(drag.x1 - drag.x0), height); }
    $('range').textContent = show(from) + ' – ' + show(to) + ' of ' + show(data.span) + (K ? '' : ' · loading');
  }
  function setRange(a, b) {
    const least = 20;
    if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; }
    const size = Math.min(b - a, data.span * 1.02 || 1);
    a = Math.max(-data.span * .01, Math.min(a, data.span * 1.01 - size));
    from = a; to = a + size; draw();
  }
  const zoom = (f, at) => setRange(at - (at - from) * f, at + (to - at) * f);
  canvas.addEventListener('wheel', e => {
    if (e.ctrlKey || !e.shiftKey) { e.preventDefault(); if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const d = e.deltaX / (width - left) * (to - from); setRange(from + d, to + d); } else zoom(Math.exp(e.deltaY * .0015), time(e.offsetX)); }
  }, {passive: false});
  let drag = null;
  canvas.addEventListener('pointerdown', e => { drag = {x0: e.offsetX, x1: e.offsetX, from, to, select: e.shiftKey, moved: false}; canvas.setPointerCapture(e.pointerId); canvas.classList.add('drag'); });
  canvas.addEventListener('pointermove', e => {
    if (drag) {
      drag.x1 = e.offsetX; drag.moved = drag.moved || Math.abs(drag.x1 - drag.x0) > 3;
      if (!drag.select) { const d = (drag.x0 - drag.x1) / (width - left) * (drag.to - drag.from); setRange(drag.from + d, drag.to + d); } else draw();
      tip.hidden = true;
    } else hover(e.offsetX, e.offsetY);
  });
  canvas.addEventListener('pointerup', e => {
    const d = drag; drag = null; canvas.classList.remove('drag');
    if (!d) return;
    if (d.select && d.moved) { const a = time(Math.min(d.x0, d.x1)), b = time(Math.max(d.x0, d.x1)); setRange(a, b); } else if (!d.moved) { const op = find(e.offsetX, e.offsetY); select(op, false); }
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('dblclick', e => { const op = find(e.offsetX, e.offsetY); if (op >= 0) { const w = Math.max(K.dur[op] * 8, 1000); setRange(K.start[op] - w / 2, K.start[op] + K.dur[op] + w / 2); } });
  function find(px, py) {
    if (!K) return -1;
    const k = Math.floor((py - trackTop(0)) / rowHeight);
    if (k < 0 || k >= K.lanes.length || py > trackTop(k) + rowHeight - 3) return -1;
    const {list, longest} = K.lanes[k], t = time(px), slack = (to - from) / (width - left) * 2;
    let best = -1;
    for (let i = firstAfter(list, t - longest - slack, j => K.start[j]); i < list.length && K.start[list[i]] <= t + slack; ++i)
      if (K.start[list[i]] + K.dur[list[i]] >= t - slack) best = list[i];
    return best;
  }
  function hover(px, py) {
    const op = find(px, py);
    const rows = [];
    let title = '';
    if (op >= 0) {
      title = T(K.name[op]);
      rows.push(['type', T(K.type[op]) + ' · ' + data.roles[K.role[op]]], ['core', T(K.core[op]) || '—'], ['at', show(K.start[op])], ['duration', show(K.dur[op])]);
      if (K.owner[op] >= 0) { const c = data.components[K.owner[op]]; rows.push(['in', c[1] + ' layer ' + c[2] + ' ' + c[0]]); } else if (data.components.length) rows.push(['in', 'no component']);
      if (K.ins[op]) rows.push(['inputs', T(K.ins[op])]);
      if (K.outs[op]) rows.push(['outputs', T(K.outs[op])]);
      rows.push(['row', String(K.row[op] + 2)]);
    } else if (py >= top0 && py < top0 + bandHeight) {
      const t = time(px), c = data.components.find(([, , , a, b]) => a <= t && t <= b);
      if (c) { title = c[0] + ', ' + c[1] + ' layer ' + c[2]; rows.push(['TOTAL', show(c[4] - c[3])]); }
    } else if (py >= top0 + bandHeight && py < top0 + bandHeight + gapHeight) {
      const t = time(px), c = data.gaps.find(([a, b]) => a <= t && t <= b);
      if (c) { title = 'nothing runs'; rows.push(['length', show(c[1] - c[0])], ['class', gapNames[c[2]]]); }
    }
    if (!title) { tip.hidden = true; return; }
    tip.replaceChildren(make('b', '', title));
    const table = make('table');
    for (const [k, v] of rows) { const r = table.insertRow(); r.insertCell().textContent = k; r.insertCell().textContent = v; }
    tip.append(table); tip.hidden = false;
    tip.style.left = Math.min(px + 14, width - tip.offsetWidth - 4) + 'px';
    tip.style.top = Math.min(py + 16, height - 10) + 'px';
  }
  async function select(op, move) {
    selected = op; draw(); grid && grid.paint();
    const box = $('detail');
    if (op < 0) { box.replaceChildren(); return; }
    if (move && (K.start[op] < from || K.start[op] + K.dur[op] > to)) { const w = to - from, m = K.start[op] + K.dur[op] / 2; setRange(m - w / 2, m + w / 2); }
    const head = make('h3', '', T(K.name[op]) + ' ');
    head.append(make('small', '', 'row ' + (K.row[op] + 2) + ' · ' + show(K.dur[op]) + ' · ' + data.tracks[K.track[op]]));
    const list = make('dl');
    box.replaceChildren(head, list);
    const values = await Promise.all(data.columns.map((_, c) => column(c)));
    if (selected !== op) return;
    data.columns.forEach((name, c) => {
      const v = values[c][op];
      if (v === '' || v === 'N/A') return;
      const item = make('div', 'kv'); item.append(make('dt', '', name), make('dd', '', v)); list.append(item);
    });
  }
  function neighbour(d) {
    if (selected < 0) return K.order[0];
    const list = K.byTrack[K.track[selected]], i = list.indexOf(selected) + d;
    return list[Math.max(0, Math.min(list.length - 1, i))];
  }
  function otherTrack(d) {
    if (selected < 0) return K.order[0];
    const k = Math.max(0, Math.min(K.byTrack.length - 1, K.track[selected] + d)), list = K.byTrack[k];
    return list[Math.min(list.length - 1, firstAfter(list, K.start[selected], j => K.start[j]))];
  }

  // ---- search ------------------------------------------------------------------------------------
  const search = $('search');
  function runSearch() {
    const q = search.value.trim().toLowerCase();
    hitAt = -1;
    if (!q || !K) { hits = null; hitList = []; $('hits').textContent = ''; draw(); grid && grid.refilter(); return; }
    const good = data.texts.map(t => t.toLowerCase().includes(q));
    hits = new Uint8Array(n); hitList = [];
    let sum = 0;
    for (const i of K.order) if (good[K.name[i]] || good[K.type[i]] || good[K.ins[i]]) { hits[i] = 1; hitList.push(i); sum += K.dur[i]; }
    $('hits').textContent = hitList.length + ' · ' + show(sum);
    draw(); grid && grid.refilter();
  }
  search.oninput = runSearch;
  search.onkeydown = e => {
    if (e.key === 'Enter' && hitList.length) { hitAt = (hitAt + (e.shiftKey ? hitList.length - 1 : 1)) % hitList.length; select(hitList[hitAt], true); $('hits').textContent = (hitAt + 1) + ' / ' + hitList.length; }
    if (e.key === 'Escape') { search.value = ''; runSearch(); search.blur(); }
  };
  addEventListener('keydown', e => {
    if (e.target.matches('input') || e.ctrlKey || e.metaKey || e.altKey || helpBox.open && e.key !== '?') return;
    const w = to - from, m = (from + to) / 2;
    const act = {w: () => zoom(.7, m), s: () => zoom(1 / .7, m), a: () => setRange(from - w * .25, to - w * .25), d: () => setRange(from + w * .25, to + w * .25), f: () => setRange(0, data.span),
      '/': () => search.focus(), t: toggleTheme, '?': () => helpBox.open ? helpBox.close() : helpBox.showModal(), Escape: () => select(-1)}[e.key];
    if (act) { e.preventDefault(); act(); return; }
    if (!K || document.activeElement !== canvas) return;
    const move = {ArrowLeft: () => neighbour(-1), ArrowRight: () => neighbour(1), ArrowUp: () => otherTrack(-1), ArrowDown: () => otherTrack(1)}[e.key];
    if (move) { e.preventDefault(); select(move(), true); }
  });

  // ---- chips: kernels of one cluster in one instance ---------------------------------------------
  addEventListener('toggle', async e => {
    const chip = e.target;
    if (!(chip instanceof HTMLDetailsElement) || !chip.open || chip.dataset.done || !chip.dataset.s) return;
    chip.dataset.done = 1;
    const item = data.sections[chip.dataset.s][chip.dataset.i], instance = +chip.dataset.n, ops = item.ops[instance];
    const box = make('div', 'ops'); box.textContent = 'loading'; chip.append(box);
    const values = await Promise.all(data.columns.map((_, c) => column(c)));
    const table = make('table'), head = table.createTHead().insertRow();
    for (const name of ['status', ...data.columns]) head.append(make('th', '', name));
    const body = table.createTBody(), nth = {}, usual = new Map(item.counts.filter(c => c[0] === instance).map(c => [c[1], c]));
    for (const op of ops) {
      const type = T(K.type[op]), k = nth[type] = (nth[type] ?? -1) + 1;
      const slow = item.slow.find(s => s[0] === instance && s[1] === type && s[2] === k), count = usual.get(type);
      let status = '', cls = '';
      if (slow) { const p = slow[3] > 0 ? (K.dur[op] / slow[3] - 1) * 100 : 0; cls = K.dur[op] > slow[3] ? 'slow' : 'fast'; status = `${cls} (${p >= 0 ? '+' : ''}${p.toFixed(0)}% vs median ${show(slow[3])})`; }
      if (count && count[2] > count[3] && k >= count[3]) { cls = cls || 'extra'; status = (status ? status + '; ' : '') + `extra (${count[2]} vs usual ${count[3]})`; }
      const row = body.insertRow(); row.className = cls;
      row.insertCell().textContent = status;
      data.columns.forEach((_, c) => { row.insertCell().textContent = values[c][op]; });
      row.onclick = () => { select(op, true); };
    }
    for (const [type, c] of usual) if (c[2] < c[3]) {
      const row = body.insertRow(); row.className = 'missing';
      row.insertCell().textContent = `missing ${c[3] - c[2]} (here ${c[2]} / usual ${c[3]})`;
      const cell = row.insertCell(); cell.colSpan = data.columns.length; cell.textContent = type;
    }
    box.replaceChildren(table);
    box.dataset.rows = body.rows.length;
  }, true);

  // ---- tables: sort and filter -------------------------------------------------------------------
  for (const table of document.querySelectorAll('table.sortable')) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((th, c) => {
      th.tabIndex = 0;
      const sort = () => {
        const desc = !th.classList.contains('desc'); heads.forEach(h => h.classList.remove('asc', 'desc')); th.classList.add(desc ? 'desc' : 'asc');
        const value = r => { const cell = r.cells[c]; return cell.dataset.v !== undefined ? +cell.dataset.v : cell.textContent; };
        const rows = [...table.tBodies[0].rows].sort((p, q) => { const a = value(p), b = value(q); return (a < b ? -1 : a > b ? 1 : 0) * (desc ? -1 : 1); });
        table.tBodies[0].append(...rows);
      };
      th.onclick = sort; th.onkeydown = e => { if (e.key === 'Enter') sort(); };
    });
  }
  for (const input of document.querySelectorAll('.filter')) input.oninput = () => {
    const q = input.value.toLowerCase();
    for (const row of input.parentElement.querySelector('tbody').rows) row.hidden = q && !row.textContent.toLowerCase().includes(q);
  };

  // ---- all kernels: only the visible rows exist --------------------------------------------------
  let grid = null;
  function makeGrid() {
    const columns = [['row', 64, i => K.row[i] + 2, true], ['at', 92, i => K.start[i], show], ['duration', 86, i => K.dur[i], show], ['name', 300, i => T(K.name[i])], ['type', 210, i => T(K.type[i])],
      ['core', 130, i => T(K.core[i])], ['stream', 96, i => data.tracks[K.track[i]]], ['component', 190, i => K.owner[i] < 0 ? '' : data.components[K.owner[i]].slice(0, 3).join(' ')], ['input shapes', 320, i => T(K.ins[i])], ['output shapes', 220, i => T(K.outs[i])]];
    const box = make('div', 'vgrid'), head = make('div', 'vhead'), pad = make('div', 'pad');
    box.tabIndex = 0; box.append(head, pad);
    let rows = K.order.slice(), sorted = 1, down = false;
    const high = 22, whole = columns.reduce((s, c) => s + c[1], 0);
    pad.style.width = whole + 'px';
    columns.forEach(([name, w], c) => { const h = make('span', '', name); h.style.width = w + 'px'; h.tabIndex = 0; h.onclick = () => { down = sorted === c ? !down : c === 2; sorted = c; refilter(); }; h.onkeydown = e => { if (e.key === 'Enter') h.onclick(); }; head.append(h); });
    function refilter() {
      rows = hits ? hitList.slice() : K.order.slice();
      const get = columns[sorted][2], keys = new Array(n);
      for (const i of rows) keys[i] = get(i);
      rows.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b) * (down ? -1 : 1));
      [...head.children].forEach((h, c) => { h.textContent = columns[c][0] + (c === sorted ? down ? ' ▼' : ' ▲' : ''); });
      pad.style.height = rows.length * high + 'px'; paintRows();
    }
    function paintRows() {
      const a = Math.max(0, Math.floor(box.scrollTop / high) - 4), b = Math.min(rows.length, a + Math.ceil(box.clientHeight / high) + 10);
      const out = [];
      for (let r = a; r < b; ++r) {
        const i = rows[r], row = make('div', 'vrow' + (i === selected ? ' sel' : ''));
        row.style.top = r * high + 'px'; row.style.width = whole + 'px';
        for (const [, w, get, format] of columns) { const v = get(i), cell = make('span', '', typeof format === 'function' ? format(v) : v); cell.style.width = w + 'px'; row.append(cell); }
        row.onclick = () => select(i, true);
        out.push(row);
      }
      pad.replaceChildren(...out);
    }
    box.onscroll = () => requestAnimationFrame(paintRows);
    $('grid').replaceChildren(box);
    grid = {refilter, paint: paintRows}; refilter();
  }

  const kinds = [...new Set(data.components.map(c => c[0]))];
  addEventListener('resize', resize);
  resize();
  load().then(() => { draw(); makeGrid(); document.documentElement.dataset.ready = 1; if (location.hash.startsWith('#op=')) select(+location.hash.slice(4), true); })
    .catch(e => { $('range').textContent = 'the kernels inside the page cannot be read: ' + e.message; });
})();
