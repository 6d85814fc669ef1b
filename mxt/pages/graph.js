// The graph page: pan, zoom, search, selection by mouse, finger or keys. No library, no network.
"use strict";
(() => {
  const nodes = JSON.parse(document.getElementById("nodes").textContent);
  const frame = document.getElementById("picture");
  const svg = frame.querySelector("svg");
  const view = svg.querySelector(".view");
  const panel = document.getElementById("details");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
  const boxes = [], edges = [];
  const needs = nodes.map(() => []), readers = nodes.map(() => []), saved = new Set();
  let selected = -1, focused = false, only = "", matches = [], place = { x: 0, y: 0, k: 1 };

  for (const element of view.querySelectorAll(".node")) {
    const n = +element.dataset.n, at = element.transform.baseVal[0].matrix;
    const box = element.querySelector(".box");
    boxes[n] = { element, x: at.e, y: at.f, w: +box.getAttribute("width"), h: +box.getAttribute("height") };
    element.setAttribute("role", "button");
    element.setAttribute("tabindex", "-1");
    element.setAttribute("aria-label", nodes[n].name + ", " + nodes[n].words);
    element.addEventListener("focus", () => select(n, false));
  }
  for (const element of view.querySelectorAll(".edge")) {
    const pairs = element.dataset.e.split(" ").map((p) => p.split("-").map(Number));
    edges.push({ element, pairs });
    const saves = element.classList.contains("saves");
    for (const [a, b] of pairs) { needs[b].push(a); readers[a].push(b); if (saves) saved.add(a + "-" + b); }
  }
  const more = element("p", "drag to see the rest", frame);
  more.id = "more";
  svg.removeAttribute("viewBox");
  svg.setAttribute("width", "100%");
  svg.setAttribute("height", "100%");
  document.body.classList.add("live");

  // ---- place and zoom
  function show() {
    view.setAttribute("transform", `translate(${place.x} ${place.y}) scale(${place.k})`);
    svg.classList.toggle("far", place.k < 0.42);
    document.getElementById("zoom").textContent = Math.round(place.k * 100) + " %";
    // a shadow along each edge behind which there is more, and a word until somebody has moved it
    const w = frame.clientWidth, h = frame.clientHeight;
    const beyond = { l: -place.x, r: place.x + width * place.k - w, t: -place.y, b: place.y + height * place.k - h };
    for (const [side, by] of Object.entries(beyond)) frame.style.setProperty("--" + side, by > 8 ? "14px" : "0px");
    more.hidden = !Object.values(beyond).some((by) => by > 8);
  }
  function fit(least) {
    const w = frame.clientWidth, h = frame.clientHeight;
    const k = Math.max(least || 0.02, Math.min(1.25, w / width, h / height));
    place = { k, x: Math.max((w - width * k) / 2, Math.min(0, (w - width * k) / 2)), y: Math.max(0, (h - height * k) / 2) };
    show();
  }
  function zoom(by, x, y) {
    const k = Math.min(4, Math.max(0.02, place.k * by));
    const cx = x === undefined ? frame.clientWidth / 2 : x, cy = y === undefined ? frame.clientHeight / 2 : y;
    place = { k, x: cx - (cx - place.x) * (k / place.k), y: cy - (cy - place.y) * (k / place.k) };
    show();
  }
  function reveal(n) {
    const b = boxes[n], w = frame.clientWidth, h = frame.clientHeight, margin = 24;
    if (place.k < 0.5) place = { k: 0.8, x: w / 2 - (b.x + b.w / 2) * 0.8, y: h / 2 - (b.y + b.h / 2) * 0.8 };
    const left = b.x * place.k + place.x, top = b.y * place.k + place.y;
    if (left < margin) place.x += margin - left;
    else if (left + b.w * place.k > w - margin) place.x -= left + b.w * place.k - w + margin;
    if (top < margin) place.y += margin - top;
    else if (top + b.h * place.k > h - margin) place.y -= top + b.h * place.k - h + margin;
    show();
  }

  // ---- what is marked
  function reach(start, next) {
    const seen = new Set([start]), stack = [start];
    while (stack.length) for (const m of next[stack.pop()]) if (!seen.has(m)) { seen.add(m); stack.push(m); }
    return seen;
  }
  function mark() {
    let bright = null;
    if (focused && selected >= 0) bright = new Set([...reach(selected, needs), ...reach(selected, readers)]);
    if (only) bright = new Set([...nodes.keys()].filter((n) => nodes[n].state === only && (!bright || bright.has(n))));
    if (search.value) bright = new Set(matches.filter((n) => !bright || bright.has(n)));
    svg.classList.toggle("some", !!bright);
    boxes.forEach((b, n) => {
      b.element.classList.toggle("bright", !!bright && bright.has(n));
      b.element.classList.toggle("selected", n === selected);
      b.element.setAttribute("tabindex", n === (selected < 0 ? 0 : selected) ? "0" : "-1");
      b.element.setAttribute("aria-pressed", String(focused && n === selected));
    });
    for (const { element, pairs } of edges) {
      element.classList.toggle("bright", !!bright && pairs.some(([a, b]) => bright.has(a) && bright.has(b)));
      element.classList.toggle("selected", pairs.some(([a, b]) => a === selected || b === selected));
    }
  }
  function select(n, move) {
    if (n !== selected) {
      selected = n;
      describe();
      mark();
    }
    if (n < 0) return;
    if (move) boxes[n].element.focus({ preventScroll: true });
    reveal(n);
    frame.scrollTop = frame.scrollLeft = 0;
  }
  function element(tag, text, parent) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }
  function links(title, list) {
    if (!list.length) return;
    element("h3", `${title} (${list.length})`, panel);
    const ul = element("ul", undefined, panel);
    list.forEach((n, i) => {
      if (i === 30) element("li", `and ${list.length - 30} more`, ul);
      if (i >= 30) return;
      const button = element("button", nodes[n].name, element("li", undefined, ul));
      button.className = nodes[n].state;
      button.addEventListener("click", () => select(n, true));
    });
  }
  function describe() {
    panel.replaceChildren();
    if (selected < 0) {
      panel.append(document.getElementById("help").content.cloneNode(true));
      return;
    }
    const node = nodes[selected];
    element("h2", node.name, panel);
    element("p", node.words, panel).className = "words " + node.state;
    const dl = element("dl", undefined, panel);
    for (const [name, value] of node.facts) { element("dt", name, dl); element("dd", value, dl); }
    const only_time = (a, b) => saved.has(a + "-" + b);
    links("Reads", needs[selected].filter((n) => !only_time(n, selected)));
    links("Is saved time by", needs[selected].filter((n) => only_time(n, selected)));
    links("Read by", readers[selected].filter((n) => !only_time(selected, n)));
    links("Saves time for", readers[selected].filter((n) => only_time(selected, n)));
  }

  // ---- keys
  function towards(dx, dy) {
    if (selected < 0) return select(0, true);
    const from = boxes[selected], fx = from.x + from.w / 2, fy = from.y + from.h / 2;
    const near = new Set([...needs[selected], ...readers[selected]]);
    let best = -1, least = Infinity;
    boxes.forEach((b, n) => {
      const x = b.x + b.w / 2 - fx, y = b.y + b.h / 2 - fy;
      const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (n === selected || ahead < 4) return;
      const cost = (ahead + 2.5 * aside) * (near.has(n) ? 0.5 : 1);
      if (cost < least) { least = cost; best = n; }
    });
    if (best >= 0) select(best, true);
  }
  const keys = {
    ArrowLeft: () => towards(-1, 0), ArrowRight: () => towards(1, 0),
    ArrowUp: () => towards(0, -1), ArrowDown: () => towards(0, 1),
    Enter: focus,
    " ": () => keys.Enter(),
    Escape: clear,
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: () => fit(),
  };
  // what belongs to the selected box, whatever was searched for before
  function focus() {
    if (selected < 0) return;
    focused = !focused;
    search.value = "";
    look();
  }
  function clear() {
    focused = false;
    only = "";
    search.value = "";
    look();
    for (const chip of document.querySelectorAll("[data-state]")) chip.setAttribute("aria-pressed", "false");
    select(-1);
    mark();
  }
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); search.select(); }
    if (event.key.startsWith("Arrow") && document.activeElement === document.body) {
      event.preventDefault();
      keys[event.key]();
    }
    if (event.key === "Escape" && !frame.contains(document.activeElement)) {
      clear();
      boxes[0] && boxes[0].element.focus({ preventScroll: true });
      clear();
    }
  });

  // ---- search and states
  function look() {
    const wanted = search.value.toLowerCase();
    matches = [...nodes.keys()].filter((n) => nodes[n].name.toLowerCase().includes(wanted));
    found.textContent = wanted ? `${matches.length} of ${nodes.length}` : "";
    mark();
  }
  let turn = -1;
  search.addEventListener("input", () => { turn = -1; look(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && search.value && matches.length) {
      event.preventDefault();
      turn = (turn + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
      select(matches[turn], false);
      found.textContent = `${turn + 1} of ${matches.length}`;
    } else if (event.key === "ArrowDown" && matches.length) {
      event.preventDefault();
      select(matches[Math.max(turn, 0)], true);
    }
  });
  for (const chip of document.querySelectorAll("[data-state]")) {
    chip.addEventListener("click", () => {
      only = only === chip.dataset.state ? "" : chip.dataset.state;
      for (const other of document.querySelectorAll("[data-state]"))
        other.setAttribute("aria-pressed", String(other.dataset.state === only));
      const first = nodes.findIndex((node) => node.state === only);
      if (only && (selected < 0 || nodes[selected].state !== only)) select(first, false);
      mark();
    });
  }
  document.getElementById("in").addEventListener("click", () => zoom(1.3));
  document.getElementById("out").addEventListener("click", () => zoom(1 / 1.3));
  document.getElementById("fit").addEventListener("click", () => fit());

  // ---- mouse and fingers
  const fingers = new Map();
  let moved = 0;
  frame.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = frame.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - at.left, event.clientY - at.top);
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (fingers.size === 1) moved = 0;
  });
  window.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const at = frame.getBoundingClientRect(), now = { x: event.clientX, y: event.clientY };
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (others.length) {
      const o = others[0], was = Math.hypot(before.x - o.x, before.y - o.y), is = Math.hypot(now.x - o.x, now.y - o.y);
      if (was > 0) zoom(is / was, (now.x + o.x) / 2 - at.left, (now.y + o.y) / 2 - at.top);
    } else {
      place.x += now.x - before.x;
      place.y += now.y - before.y;
      if (moved > 6) more.remove();
      show();
    }
    fingers.set(event.pointerId, now);
  });
  for (const name of ["pointerup", "pointercancel"])
    window.addEventListener(name, (event) => {
      const mine = fingers.delete(event.pointerId);
      if (name !== "pointerup" || !mine || moved > 6 || !frame.contains(event.target)) return;
      const node = event.target.closest(".node");
      if (!node) { clear(); return; }
      const n = +node.dataset.n;
      if (n === selected) focus();
      else select(n, true);
    });
  frame.addEventListener("mousedown", (event) => event.preventDefault());

  // a phone's window may turn, a panel may open: what was in the middle stays near it
  let size = [frame.clientWidth, frame.clientHeight];
  new ResizeObserver(() => {
    const now = [frame.clientWidth, frame.clientHeight];
    place.x += (now[0] - size[0]) / 2;
    place.y += (now[1] - size[1]) / 2;
    size = now;
    show();
  }).observe(frame);
  window.addEventListener("beforeprint", () => { svg.setAttribute("viewBox", `0 0 ${width} ${height}`); view.removeAttribute("transform"); svg.classList.remove("far"); });
  window.addEventListener("afterprint", () => { svg.removeAttribute("viewBox"); show(); });

  fit(nodes.length <= 80 ? 0.5 : 0);
  describe();
  mark();
  const asked = nodes.findIndex((node) => node.name === decodeURIComponent(location.hash.slice(1)));
  if (asked >= 0) select(asked, true);
})();
