"use strict";
// What moves on the pages. Everything is there without it, as of when the page was asked for.
(() => {
  const every = 2000, keep = 300;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const byId = (id) => document.getElementById(id);

  // Charts of the overview: points are [ms, allowed, denied, undecided, median ms, 99th ms].
  const charts = [];
  let points = [];

  const short = (v) => v == null ? "" : v >= 1e6 ? +(v / 1e6).toFixed(1) + "M" : v >= 1e4 ? +(v / 1e3).toFixed(1) + "k" : String(+v.toPrecision(3));
  const took = (ms) => ms == null ? "" : ms === 0 ? "0" : ms < 1 ? short(ms * 1000) + " µs" : ms < 1000 ? short(ms) + " ms" : short(ms / 1000) + " s";

  function columns(from, to) {
    const data = [points.map((p) => p[0] / 1000)];
    for (let i = from; i < to; i++) data.push(points.map((p) => p[i]));
    return data;
  }

  function draw(id, from, to, names, colors, format) {
    const at = byId(id);
    if (!at || typeof uPlot === "undefined") return;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const plot = new uPlot({
      width: at.clientWidth, height: 190, padding: [10, 26, 0, 0], legend: { show: false }, cursor: { drag: { setScale: false }, y: false },
      scales: { x: { time: true, range: () => { const now = points.length ? points[points.length - 1][0] / 1000 : Date.now() / 1000; const first = points.length ? points[0][0] / 1000 : now; return [Math.min(now - 120, Math.max(first, now - keep * every / 1000)), now]; } },
        y: { range: (_, _min, max) => [0, max > 0 ? max * 1.15 : 1] } },
      axes: [{ ...axis, size: 26, space: 80, grid: { show: false }, values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(ticks[1] - ticks[0] < 60 ? { second: "2-digit" } : {}) })) },
        { ...axis, size: 58, space: 36, values: (_, ticks) => ticks.map(format) }],
      series: [{}].concat(names.map((name, i) => ({ label: name, stroke: css(colors[i]), width: 1.75, points: { show: false } }))),
    }, columns(from, to), at);
    charts.push({ at, plot, from, to });
  }

  function redraw() {
    for (const c of charts) { c.plot.destroy(); }
    charts.length = 0;
    draw("chart-checks", 1, 4, ["allowed", "denied", "undecided"], ["--allowed", "--denied", "--undecided"], short);
    draw("chart-latency", 4, 6, ["median", "99th percentile"], ["--p50", "--p99"], took);
  }

  // A part of a page is replaced only if it differs, so that a screen reader has nothing to say about the rest.
  const shown = {};
  function replace(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const at = byId(id);
      if (at && shown[id] !== html) { shown[id] = html; at.innerHTML = html; } // of our own templates, which escape
    }
  }

  // A page whose node is silent says since when, until the node answers again.
  function silence() {
    const state = byId("live-state"), said = state.innerHTML;
    let failed = 0;
    return (answered) => {
      if (answered) {
        if (failed > 1) state.innerHTML = said;
        failed = 0;
      } else if (++failed === 2) state.textContent = "This node does not answer since " + new Date().toLocaleTimeString() + ". What you see is from before.";
    };
  }

  function overview() {
    const first = byId("points");
    if (!first) return;
    points = JSON.parse(first.textContent);
    redraw();
    const tell = silence();
    const look = async () => {
      if (!document.hidden) {
        try {
          const after = points.length ? points[points.length - 1][0] : 0;
          const response = await fetch("/ui/live?after=" + after, { signal: AbortSignal.timeout(5000), redirect: "error" });
          if (response.status === 401) { location.reload(); return; }
          if (!response.ok) throw new Error(String(response.status));
          const answer = await response.json();
          points = points.concat(answer.points).slice(-keep);
          for (const c of charts) c.plot.setData(columns(c.from, c.to));
          replace(answer.parts);
          tell(true);
        } catch {
          tell(false);
        }
      }
      setTimeout(look, every);
    };
    setTimeout(look, every);
    new ResizeObserver(() => { for (const c of charts) c.plot.setSize({ width: c.at.clientWidth, height: 190 }); }).observe(byId("chart-checks"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  // The text of a rule is checked as one types; what it would change is shown before it is in force.
  function edit() {
    const form = byId("edit"), verdict = byId("verdict");
    if (!form) return;
    let timer = 0, asked = 0;
    const check = async () => {
      const mine = ++asked;
      try {
        const response = await fetch("/ui/check-rule", { method: "POST", body: new URLSearchParams(new FormData(form)), signal: AbortSignal.timeout(5000), redirect: "error" });
        const html = await response.text();
        if (mine === asked && response.ok && verdict.innerHTML !== html) verdict.innerHTML = html; // of our own templates
      } catch { /* the buttons ask again */ }
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 350); });
    form.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); byId("save").click(); }
    });
    check();
  }

  function slider() {
    const percent = byId("percent"), shown = byId("percent-shown");
    if (percent) percent.addEventListener("input", () => { shown.textContent = percent.value + " %"; });
  }

  // A list of rows has an empty one at its end: when that is filled in, another one comes.
  function rows(list) {
    list.addEventListener("input", () => {
      const last = list.lastElementChild;
      if (list.children.length >= 32 || ![...last.querySelectorAll("input:not([type=hidden]), textarea")].some((e) => e.value)) return;
      const next = last.cloneNode(true);
      for (const e of next.querySelectorAll("[id]")) e.id = e.id.replace(/\d+$/, list.children.length);
      for (const e of next.querySelectorAll("[for]")) e.htmlFor = e.htmlFor.replace(/\d+$/, list.children.length);
      for (const e of next.querySelectorAll("input, textarea")) e.value = e.type === "hidden" ? "0" : "";
      for (const e of next.querySelectorAll("select")) e.selectedIndex = 0;
      list.append(next);
    });
  }

  // A part of a page that says where it comes from is asked for again and again, and replaced if it differs. While the focus is in
  // it, it stays as it is.
  function live(at) {
    const tell = silence();
    let shown = null;
    const look = async () => {
      if (!document.hidden) {
        try {
          const version = at.querySelector("[data-version]");
          const seen = version ? "&seen=" + encodeURIComponent(version.dataset.version) : "";
          const response = await fetch(at.dataset.live + seen, { signal: AbortSignal.timeout(5000), redirect: "error" });
          if (response.status === 401) { location.reload(); return; }
          if (!response.ok) throw new Error(String(response.status));
          if (response.status === 200) {
            const html = await response.text();
            if (html !== shown && !at.contains(document.activeElement)) { shown = html; at.innerHTML = html; } // of our own templates, which escape
          }
          tell(true);
        } catch {
          tell(false);
        }
      }
      setTimeout(look, every);
    };
    setTimeout(look, every);
  }

  // A replay can be cancelled: the node ends it when the browser goes. A log that the node would refuse is not sent.
  function backtest() {
    const form = byId("backtest"), log = byId("log"), cancel = byId("cancel"), said = byId("replaying");
    if (!form) return;
    const before = said.innerHTML;
    form.addEventListener("submit", (e) => {
      const file = log.files[0];
      if (file && file.size > Number(log.dataset.most)) {
        e.preventDefault();
        said.textContent = "This file is too large: compress it with gzip, or use weir simulate.";
        return;
      }
      if (file) form.elements.source.value = "given";
      said.textContent = "The node replays the log …";
      cancel.hidden = false;
    });
    cancel.addEventListener("click", () => { window.stop(); cancel.hidden = true; said.innerHTML = before; });
    addEventListener("pageshow", () => { cancel.hidden = true; said.innerHTML = before; });
  }

  overview();
  edit();
  slider();
  backtest();
  for (const list of document.querySelectorAll("[data-rows]")) rows(list);
  for (const at of document.querySelectorAll("[data-live]")) live(at);
})();
