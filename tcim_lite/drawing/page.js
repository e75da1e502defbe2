"use strict";
// Everything that comes from the file is set as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const NAME = 0, KIND = 0, READS = 1, MAKES = 2;  // places in the lists of values and of ops
let part = 0, folded = true, zoom = 1, chosen = -1;

const views = [...document.querySelectorAll("#view > svg")];
const shown = () => views.find(v => +v.dataset.part === part && (v.dataset.folded === "1") === folded);
const make = (tag, text, style) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (style) element.className = style;
  return element;
};
const bytes = n => { for (const [unit, f] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= f)
  return `${+(n / f).toPrecision(3)} ${unit}`; return `${n} B`; };

function show() {
  if (!shown()) folded = true;
  for (const view of views) view.style.display = view === shown() ? "" : "none";
  at("folded").hidden = views.filter(v => +v.dataset.part === part).length < 2;
  at("folded").textContent = folded ? "Show every repeat" : "Fold repeats";
  fit();
}
function resize(factor, x, y) {
  const box = at("view"), view = shown();
  const next = Math.min(Math.max(factor, 0.02), 8), ratio = next / zoom;
  zoom = next;
  view.setAttribute("width", view.viewBox.baseVal.width * zoom);
  view.setAttribute("height", view.viewBox.baseVal.height * zoom);
  box.scrollLeft = (box.scrollLeft + x) * ratio - x;
  box.scrollTop = (box.scrollTop + y) * ratio - y;
}
function fit() {
  zoom = 1;
  resize(Math.min(1, at("view").clientWidth / shown().viewBox.baseVal.width), 0, 0);
}

// Blocks that enclose an op, outermost first, each with the repeat that the op is in; and the op that is drawn for it.
function drawn(op) {
  const around = [];
  for (const block of shown().querySelectorAll(".block")) {
    const [start, period, count] = ["start", "period", "count"].map(key => +block.dataset[key]);
    if (op < start || op >= start + period * count) continue;
    const repeat = Math.floor((op - start) / period);
    around.push({ repeat, period, count });
    op -= repeat * period;
  }
  return { op, around };
}
function mark(test) {
  for (const element of shown().querySelectorAll(".hot, .op.on")) element.classList.remove("hot", "on");
  for (const element of shown().querySelectorAll(".flow")) if (test(+element.dataset.value)) element.classList.add("hot");
}
function choose(op, scroll) {
  const { ops, values } = DATA[part];
  if (!ops[op]) return;
  chosen = op;
  const place = drawn(op), like = ops[place.op];
  const used = new Set([...like[READS], ...like[MAKES]]);
  mark(value => used.has(value));
  const row = shown().querySelector(`.op[data-op="${place.op}"]`);
  row.classList.add("on");
  if (scroll && zoom < 0.6) resize(0.8, 0, 0);
  if (scroll) row.scrollIntoView({ block: "center", inline: "center" });
  const panel = at("panel"), [kind, reads, makes, attributes] = ops[op];
  panel.replaceChildren(make("h2", kind), make("p", `op ${op} of ${ops.length}`, "soft"));
  for (const { repeat, period, count } of place.around) {
    const step = make("div", undefined, "step");
    for (const [sign, by] of [["‹", -1], ["›", 1]]) {
      const button = make("button", sign);
      button.disabled = repeat + by < 0 || repeat + by >= count;
      button.onclick = () => choose(op + by * period, false);
      step.append(button);
      if (by < 0) step.append(make("span", `repeat ${repeat + 1} of ${count}`));
    }
    panel.append(step);
  }
  const keys = Object.keys(attributes);
  if (keys.length) panel.append(make("h3", "attributes"));
  for (const key of keys) panel.append(make("p", `${key} = ${attributes[key]}`));
  panel.append(make("h3", "reads"), ...reads.map(id => described(values[id])));
  panel.append(make("h3", "makes"), ...makes.map(id => described(values[id], id)));
  history.replaceState(null, "", `#part=${part}&op=${op}`);
}
function described(value, id) {
  const box = make("div", undefined, "value");
  const [name, kind, type, shape, format, size, role, maker] = value;
  box.append(make("code", name), make("span", `${kind}${role ? ` ${role}` : ""} · ${type} [${shape.join(", ")}] · `
    + `${format === "dense" ? "" : `${format} · `}${bytes(size)}`, "soft"));
  const readers = id === undefined ? [] : DATA[part].ops.flatMap((op, index) => op[READS].includes(id) ? [index] : []);
  for (const other of id === undefined ? (maker < 0 ? [] : [maker]) : readers.slice(0, 20)) {
    const link = make("a", ` ${id === undefined ? "from" : "to"} op ${other} ${DATA[part].ops[other][KIND]}`);
    link.onclick = () => choose(other, true);
    box.append(link);
  }
  return box;
}
function overview() {
  const { ops, facts } = DATA[part], counts = new Map();
  for (const [kind] of ops) counts.set(kind, (counts.get(kind) || 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  at("panel").replaceChildren(make("h2", DATA[part].name), ...facts.map(fact => make("p", fact, "soft")),
    make("h3", "ops"), ...sorted.map(([kind, count]) => make("p", `${count} ${kind}`)),
    make("p", "Click an op for its operands.", "soft"));
}
function search(text) {
  const { ops, values } = DATA[part], wanted = text.toLowerCase(), found = [];
  for (let index = 0; index < ops.length && found.length < 100; index++) {
    const [kind, reads, makes] = ops[index];
    const hit = kind.toLowerCase().includes(wanted) ? "" :
      [...makes, ...reads].map(id => values[id][NAME]).find(name => name.toLowerCase().includes(wanted));
    if (hit !== undefined) found.push([index, `${index} ${kind} ${hit}`]);
  }
  at("panel").replaceChildren(make("h3", `${found.length}${found.length === 100 ? " or more" : ""} ops`),
    ...found.map(([index, label]) => {
      const link = make("p"), inner = make("a", label);
      inner.onclick = () => choose(index, true);
      link.append(inner);
      return link;
    }));
}

DATA.forEach((one, index) => { const option = make("option", one.name); option.value = index; at("part").append(option); });
at("part").onchange = () => { part = +at("part").value; chosen = -1; show(); overview(); };
at("folded").onclick = () => { folded = !folded; show(); if (chosen >= 0) choose(chosen, true); };
at("fit").onclick = fit;
for (const [id, by] of [["in", 1.25], ["out", 0.8]])
  at(id).onclick = () => resize(zoom * by, at("view").clientWidth / 2, at("view").clientHeight / 2);
at("search").oninput = event => event.target.value ? search(event.target.value) : overview();
at("view").onwheel = event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const box = at("view").getBoundingClientRect();
  resize(zoom * Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
};
let from = null;
at("view").onpointerdown = event => { if (event.button === 0) from = { x: event.clientX, y: event.clientY, moved: false }; };
addEventListener("pointermove", event => {
  if (!from || !event.buttons) return;
  const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
  if (!from.moved && Math.hypot(dx, dy) < 4) return;
  at("view").classList.add("drag");
  at("view").scrollLeft -= dx;
  at("view").scrollTop -= dy;
  from = { x: event.clientX, y: event.clientY, moved: true };
});
addEventListener("pointerup", event => {
  const target = event.target.closest && event.target.closest(".op, .flow, .end");
  at("view").classList.remove("drag");
  if (from && !from.moved && target && target.dataset.op) choose(+target.dataset.op, false);
  else if (from && !from.moved && target) mark(value => value === +target.dataset.value);
  from = null;
});
const wanted = new URLSearchParams(location.hash.slice(1));
if (DATA[+wanted.get("part")]) part = +wanted.get("part");
at("part").value = part;
show();
overview();
if (wanted.has("op")) choose(+wanted.get("op"), true);
