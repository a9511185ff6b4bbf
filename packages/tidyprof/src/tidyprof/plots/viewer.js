// The viewer that replaces a figure while it is open: zoom, pan, name events, jump from a kernel to its launch, find
// names, and sum a range. It draws the JSON data of its box on a canvas and needs no other files. It creates only
// elements and text, never HTML, from the content of a profile.
(function () {
  "use strict";
  const GROUNDS = { light: ["#ffffff", "#1a1a1a", "#595959", "#d0d0d0"], dark: ["#111111", "#eeeeee", "#b0b0b0", "#444444"] };
  const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
  const AXIS = 34; // pixels above the rows, for the position of the view in the whole, and for the ticks
  const LABEL = 17; // height of a lane's name above its bars
  const NARROW = 2; // pixels: narrower bars are drawn together, as high as the share of time that they fill
  const NEAR = 5; // pixels around the pointer for finding a narrow bar
  const UNITS = { ns: [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]], bytes: [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["bytes", 1]] };
  const STYLE = `
.tidy-viewer{font:13px/1.45 system-ui,'DejaVu Sans',sans-serif;max-width:1056px;margin:.4em 0}
.tidy-viewer button,.tidy-viewer input{font:inherit;color:inherit;background:transparent;border:1px solid currentColor;
border-radius:4px;padding:2px 9px;min-height:30px;min-width:34px;margin:0;box-sizing:border-box}
.tidy-viewer button{cursor:pointer}
.tidy-viewer input{cursor:text;width:11em;max-width:100%}
.tidy-viewer input::placeholder{color:inherit;opacity:.8}
.tidy-viewer :focus-visible{outline:3px solid #0072b2;outline-offset:1px}
.tidy-viewer .tv-dark :focus-visible,.tidy-viewer.tv-dark :focus-visible{outline-color:#56b4e9}
.tidy-viewer .tv-panel{padding:8px;margin-top:6px;border:1px solid #808080;border-radius:4px}
.tidy-viewer .tv-bar,.tidy-viewer .tv-legend{display:flex;flex-wrap:wrap;gap:6px;align-items:center}
.tidy-viewer .tv-legend{gap:4px 14px;margin-top:6px}
.tidy-viewer .tv-legend span{display:inline-flex;gap:5px;align-items:center}
.tidy-viewer .tv-legend canvas{width:22px;height:14px}
.tidy-viewer .tv-stage{margin-top:8px;touch-action:pan-y;cursor:grab;user-select:none;-webkit-user-select:none}
.tidy-viewer .tv-stage canvas{display:block}
.tidy-viewer .tv-rows{max-height:max(50vh,200px);overflow-y:auto}
.tidy-viewer .tv-said{min-height:5.4em;margin-top:6px;overflow-wrap:anywhere}
.tidy-viewer .tv-said div{margin:0}
.tidy-viewer .tv-name{font-weight:bold;font-size:14px}
.tidy-viewer .tv-whole{font-size:12px;max-height:4.4em;overflow:hidden}
.tidy-viewer .tv-note{font-size:12px;margin-top:4px}
@media (max-width:600px){.tidy-viewer .tv-said{min-height:8em}}
.tidy-viewer .tv-said table{border-collapse:collapse;font-size:12px;margin:4px 0 0;width:auto}
.tidy-viewer .tv-said :is(th,td){padding:1px 12px 1px 0;text-align:left;font-variant-numeric:tabular-nums;
background:transparent;color:inherit;border:0;max-width:40em}
.tidy-viewer .tv-said :is(th,td):not(:first-child){text-align:right;white-space:nowrap}
@media print{.tidy-viewer{display:none}img.tidy-figure[hidden]{display:inline!important}}`;

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text) element.textContent = text;
    return element;
  };
  const within = (value, least, most) => Math.max(least, Math.min(most, value));
  const channels = (color) => (/^#/.test(color) ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : (color.match(/[\d.]+/g) || [0, 0, 0]).map(Number));
  const luminance = (color) => channels(color).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const whole = (number) => Math.round(number).toLocaleString("en-US");

  // A quantity as text: at least three digits in a suitable unit.
  function amount(value, unit) {
    if (!UNITS[unit]) return `${whole(value)} ${unit}`;
    const [name, size] = UNITS[unit].find(([, one]) => Math.abs(value) >= one) || UNITS[unit].at(-1);
    const scaled = value / size;
    const digits = size === 1 ? 0 : Math.abs(scaled) < 9.995 ? 2 : Math.abs(scaled) < 99.95 ? 1 : 0;
    return `${scaled.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
  }

  // The start of an event of this length, with enough digits to distinguish it from its neighbors, in the unit of the
  // whole.
  function moment(value, length, unit, span) {
    if (!UNITS[unit]) return whole(value);
    const [name, size] = UNITS[unit].find(([, one]) => span >= one) || UNITS[unit].at(-1);
    const fine = unit === "ns" && length >= 1e3 ? 3 : 0; // neighbors in a row start at least a microsecond apart
    const digits = within(Math.round(Math.log10(size)) - fine, 0, unit === "ns" ? 6 : 3);
    return `${(value / size).toLocaleString("en-US", { maximumFractionDigits: digits })} ${name}`;
  }

  // Ticks at round numbers, about one per 110 pixels, each with its text.
  function ticks(from, to, pixels, unit) {
    const units = UNITS[unit] || [["", 1]];
    const rough = ((to - from) * 110) / Math.max(pixels, 1);
    const [name, size] = units.find(([, one]) => Math.max(Math.abs(from), Math.abs(to)) >= one) || units.at(-1);
    const power = 10 ** Math.floor(Math.log10(rough / size));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one * size >= rough) || power * 10;
    const digits = within(-Math.floor(Math.log10(step) + 1e-9), 0, 9);
    const found = [];
    for (let number = Math.ceil(from / size / step - 1e-9); number * step * size <= to + 1e-9 * (to - from); number++) {
      const text = (number * step).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
      found.push([number * step * size, text.replace(/^-(?=[0.]+$)/, ""), name]);
    }
    return found;
  }

  // The pattern of a hatch, as in the figure: / \ . x +
  function hatch(context, kind, color, ink) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = color;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 0.9;
    pen.beginPath();
    const line = (a, b, c, d) => (pen.moveTo(a, b), pen.lineTo(c, d));
    if (/[/x]/.test(kind)) [-8, 0, 8].forEach((at) => line(at, 8, at + 8, 0));
    if (/[\\x]/.test(kind)) [-8, 0, 8].forEach((at) => line(at, 0, at + 8, 8));
    if (/\+/.test(kind)) (line(4, 0, 4, 8), line(0, 4, 8, 4));
    pen.stroke();
    if (/\./.test(kind)) (pen.fillRect(1, 1, 1.6, 1.6), pen.fillRect(5, 5, 1.6, 1.6));
    return context.createPattern(tile, "repeat");
  }

  // Give each level of nesting its own row below its lane. Rounding may move an end by one unit.
  // Returns for each row: the lane, the level and the items by start; and for each item: the row and the outer item.
  function nest(data) {
    const count = data.start.length, end = (place) => data.start[place] + data.length[place];
    const perLane = data.lanes.map(() => []), row = new Array(count), outer = new Array(count).fill(-1);
    for (let place = 0; place < count; place++) perLane[data.row[place]].push(place);
    const rows = [];
    perLane.forEach((own, lane) => {
      own.sort((one, other) => data.start[one] - data.start[other] || data.length[other] - data.length[one]);
      const first = rows.length, open = [];
      rows.push({ lane, level: 0, places: [] });
      for (const place of own) {
        while (open.length && (end(open.at(-1)) <= data.start[place] || end(open.at(-1)) + 1 < end(place))) open.pop();
        const level = open.length;
        if (level) outer[place] = open.at(-1);
        open.push(place);
        (rows[first + level] ||= { lane, level, places: [] }).places.push(place);
        row[place] = first + level;
      }
    });
    return { rows, row, outer };
  }

  // A launch is the runtime call that starts at the kernel's launch time. One call can launch many kernels.
  function launches(data) {
    const calls = new Map(), call = new Map(), work = new Map();
    if (!data.launched) return { call, work };
    data.start.forEach((start, place) => data.looks[data.look[place]][0] === "runtime call" && calls.set(start, place));
    data.launched.forEach((before, place) => {
      const found = before === null ? undefined : calls.get(data.start[place] - before);
      if (found === undefined) return;
      call.set(place, found);
      if (!work.has(found)) work.set(found, []);
      work.get(found).push(place);
    });
    return { call, work };
  }

  // Items: start, length, row, and a description.
  function boxItems(data) {
    const start = data.start, launched = data.launched || [], { rows, row, outer } = nest(data);
    return {
      count: start.length, start, length: data.length, rows, row, outer, look: data.look, ...launches(data),
      name: (place) => data.names[data.name[place]][0],
      whole: (place) => data.names[data.name[place]][1],
      facts(place) {
        const facts = [amount(data.length[place], data.unit)];
        if (data.share) facts[0] += `, ${((100 * data.length[place]) / data.span).toPrecision(3)}% of the total`;
        if (data.own && data.own[place]) facts.push(`${amount(data.own[place], data.unit)} in the function itself`);
        if (!data.share) facts.push(`starts at ${moment(start[place], data.length[place], data.unit, data.span)}`);
        const caller = data.operator ? data.operators[data.operator[place]] : "", before = launched[place];
        if (before !== null && before !== undefined) {
          const when = before < 0 ? `${amount(-before, data.unit)} after it started` : `${amount(before, data.unit)} earlier`;
          facts.push(`launched ${when}${caller ? `, in ${caller}` : ""}`);
        } else if (caller) facts.push(`in ${caller}`);
        if (outer[place] >= 0) facts.push(`inside ${data.names[data.name[outer[place]]][0]}`);
        return facts;
      },
      lane: (place) => data.lanes[data.row[place]],
    };
  }

  function connect(box) {
    const text = box.querySelector("script").textContent;
    box.dataset.ready = "1";
    box.append(make("style", "", STYLE));
    const opener = make("button", "", "Look closer");
    opener.type = "button";
    opener.setAttribute("aria-expanded", "false");
    opener.title = "Zoom, pan, and see the name of each event";
    box.append(opener);
    let panel = null;
    const figure = box.parentElement.querySelector("img.tidy-figure");
    opener.addEventListener("click", () => {
      const fresh = !panel;
      if (fresh) panel = open(box, JSON.parse(text));
      else panel.hidden = !panel.hidden;
      opener.setAttribute("aria-expanded", String(!panel.hidden));
      opener.textContent = panel.hidden ? "Look closer" : "Back to the figure";
      if (figure) figure.hidden = !panel.hidden;
      if (panel.hidden) return;
      panel.querySelector(".tv-stage").focus({ preventScroll: true });
      panel.scrollIntoView({ block: "nearest" }); // including the line with the name of the selected item
    });
  }

  function open(box, data) {
    const items = boxItems(data);
    const panel = make("div", "tv-panel");
    const title = data.title || box.parentElement.querySelector("h2")?.textContent || "Viewer";
    panel.dataset.lmSuppressShortcuts = "true"; // otherwise, JupyterLab would handle the keys
    const bar = make("div", "tv-bar");
    const stage = make("div", "tv-stage tv-rows");
    const canvas = make("canvas");
    const legend = make("div", "tv-legend");
    const said = make("div", "tv-said");
    const note = make("div", "tv-note");
    stage.tabIndex = 0;
    stage.setAttribute("role", "application");
    stage.setAttribute("aria-label", `${title}: ${whole(items.count)} ${data.things}. Press plus or minus to zoom, `
      + "the left or right arrow to move, n or p for the next or previous one, the up or down arrow for another row, "
      + "Enter to zoom to the selected one, l to jump between a kernel and its launch, m to sum what runs during it, "
      + "and Home to show all.");
    canvas.setAttribute("aria-hidden", "true");
    stage.append(canvas);

    const least = data.unit === "ns" ? 20 : 2; // the narrowest view
    const perRow = items.rows.map((row) => row.places);
    let from = 0, to = data.span, chosen = -1, hovered = -1, waiting = false, found = "", hits = new Set(), range = null;

    // --- positions
    let width = 0, height = 0, dark = false;
    const tops = [];
    const [laneHeight, gap] = data.share ? [20, 0] : [22, 5];
    let y = AXIS;
    const labelOf = (row) => (row.level ? "" : data.lanes[row.lane]);
    items.rows.forEach((row, place) => {
      y += labelOf(row) ? LABEL : 0;
      tops.push(y);
      y += laneHeight + (items.rows[place + 1]?.level ? 0 : gap);
    });
    height = y + 2;
    const pixel = (value) => ((value - from) / (to - from)) * width;
    const valueAt = (x) => from + (x / width) * (to - from);

    function view(begin, finish) {
      const size = within(finish - begin, least, data.span);
      const middle = (begin + finish) / 2;
      from = within(middle - size / 2, 0, Math.max(0, data.span - size));
      to = from + size;
      later();
    }
    function zoom(factor, around) {
      const fixed = around ?? (chosen >= 0 && seen(chosen) ? within(middleOf(chosen), from, to) : (from + to) / 2);
      const size = within((to - from) / factor, least, data.span);
      const begin = fixed - ((fixed - from) / (to - from)) * size;
      view(begin, begin + size);
    }
    const pan = (share) => view(from + share * (to - from), to + share * (to - from));
    const middleOf = (place) => items.start[place] + items.length[place] / 2;
    const seen = (place) => items.start[place] <= to && items.start[place] + items.length[place] >= from;
    function fill(place) {
      const room = items.length[place] * 0.05 || least;
      view(items.start[place] - room, items.start[place] + items.length[place] + room);
    }

    // --- selection
    function choose(place, byKey) {
      chosen = place;
      hovered = -1;
      range = null;
      tell(place, byKey);
      if (place >= 0) {
        const top = tops[items.row[place]];
        stage.scrollTop = within(stage.scrollTop, top + laneHeight + gap - stage.clientHeight, top - LABEL - AXIS);
      }
      if (place >= 0 && !seen(place)) {
        const size = to - from;
        view(middleOf(place) - size / 2, middleOf(place) + size / 2);
      }
      later();
    }
    function nearest(row) {
      const goal = chosen >= 0 && seen(chosen) ? within(middleOf(chosen), from, to) : (from + to) / 2;
      const away = (place) => Math.max(items.start[place] - goal, goal - items.start[place] - items.length[place], 0);
      return perRow[row].reduce((best, place) => (best < 0 || away(place) < away(best) ? place : best), -1);
    }
    function along(step) {
      if (chosen < 0) {
        const row = perRow.findIndex((own) => own.some(seen));
        choose(row < 0 ? -1 : perRow[row].find(seen), true);
        return;
      }
      const own = perRow[items.row[chosen]], next = own[own.indexOf(chosen) + step];
      if (next !== undefined) choose(next, true);
      else across(step); // at the end of a row
    }
    function across(step) {
      const first = chosen < 0 ? (step > 0 ? 0 : perRow.length - 1) : items.row[chosen] + step;
      for (let row = first; row >= 0 && row < perRow.length; row += step) {
        if (perRow[row].length) return choose(nearest(row), true);
      }
      return undefined;
    }
    function find(words) {
      const wanted = words.trim().toLowerCase();
      if (!wanted) return;
      const hit = (place) => `${items.name(place)} ${items.whole(place)}`.toLowerCase().includes(wanted);
      const all = [];
      for (let place = 0; place < items.count; place++) if (hit(place)) all.push(place);
      hits = new Set(all);
      later();
      if (!all.length) {
        said.replaceChildren(make("div", "", `None of these ${whole(items.count)} ${data.things} has “${words.trim()}” in its name.`));
        return;
      }
      const next = wanted === found && chosen >= 0 ? all.find((place) => place > chosen) ?? all[0] : all[0];
      found = wanted;
      choose(next, true);
      if (pixel(items.start[next] + items.length[next]) - pixel(items.start[next]) < 40) fill(next);
      said.append(make("div", "", `${whole(all.indexOf(next) + 1)} of ${whole(all.length)} found, each with a mark. Press Enter for the next one.`));
    }

    // Jump from a kernel to its launch, or from a call to the next item that it launched.
    function jump() {
      const call = items.call.get(chosen);
      const work = items.work.get(call ?? chosen) || [];
      if (call !== undefined) jump.last = chosen;
      const next = call ?? (work.includes(jump.last) ? jump.last : work[0]);
      if (next !== undefined) return choose(next, true);
      said.append(make("div", "", chosen < 0 ? "Select a kernel or a runtime call first."
        : "The figure doesn't contain its launch. Select a kernel, a copy or a runtime call."));
      return undefined;
    }

    // --- the sum of a range, or of the selected one, or of what is shown
    function sumUp() {
      if (chosen < 0) sum(from, to, true, "Shown");
      else sum(items.start[chosen], items.start[chosen] + items.length[chosen], true);
    }
    function sum(begin, finish, byKey, word = "Selected") {
      range = [within(begin, 0, data.span), within(finish, 0, data.span)];
      said.setAttribute("aria-live", byKey ? "polite" : "off");
      const names = new Map(), lanes = [];
      items.rows.forEach((row) => {
        let count = 0, filled = 0, reach = range[0];
        for (const place of row.places) {
          const left = Math.max(items.start[place], range[0]);
          const right = Math.min(items.start[place] + items.length[place], range[1]);
          if (right <= left) continue;
          count += 1;
          filled += Math.max(0, right - Math.max(left, reach));
          reach = Math.max(reach, right);
          const key = `${row.lane} ${items.name(place)}`;
          const known = names.get(key) || { name: items.name(place), count: 0, total: 0 };
          names.set(key, Object.assign(known, { count: known.count + 1, total: known.total + right - left }));
        }
        if (count && !row.level) lanes.push([data.lanes[row.lane], count, filled]);
      });
      const size = range[1] - range[0];
      const head = make("div", "tv-name", `${word}: ${amount(size, data.unit)}`);
      const table = make("table");
      const line = (cells, tag) => {
        const tr = make("tr");
        for (const cell of cells) tr.append(make(tag, "", cell));
        table.append(tr);
      };
      const share = (part) => `${((100 * part) / size).toFixed(part < size / 10 ? 1 : 0)}%`;
      if (!data.share) {
        line(["lane", "outermost events", "time covered", "share"], "th");
        for (const [lane, count, filled] of lanes) line([lane || "row", whole(count), amount(filled, data.unit), share(filled)], "td");
      }
      line(["most by name", "count", "sum", "share"], "th");
      for (const one of [...names.values()].sort((a, b) => b.total - a.total).slice(0, 8))
        line([one.name, whole(one.count), amount(one.total, data.unit), share(one.total)], "td");
      const notes = [];
      if (!data.share) notes.push("Sums count what ran during this time, not what was launched then.");
      if (items.rows.some((row) => row.level)) notes.push("The sum of an event includes the events inside it.");
      if (data.left) notes.push(data.share ? `The smallest ${data.things} aren't in the sums.`
        : "Lanes whose name contains “the longest” lack their shortest events. All other lanes are complete.");
      said.replaceChildren(head, table, make("div", "tv-note", notes.join(" ")));
      later();
    }

    // --- texts
    function tell(place, byKey) {
      said.setAttribute("aria-live", byKey ? "polite" : "off");
      if (place < 0) {
        said.replaceChildren(make("div", "",
          `Point at or touch one of the ${whole(items.count)} ${data.things}, or press n, to see its name and length. `
          + "To select and sum a time, hold Shift and drag."));
        return;
      }
      const name = make("div", "tv-name", items.name(place));
      const facts = make("div", "", items.facts(place).join(" · "));
      said.replaceChildren(name, facts);
      if (!data.share && items.outer[place] < 0) {
        const own = perRow[items.row[place]];
        const lane = items.lane(place);
        said.append(make("div", "", `number ${whole(own.indexOf(place) + 1)} of ${whole(own.length)}${lane ? ` in the lane “${lane}”` : " in its row"}`));
      }
      const work = items.work.get(place);
      if (items.call.has(place)) said.append(make("div", "", "To jump to its launch, press l."));
      else if (work) said.append(make("div", "", `It launched ${items.name(work[0])}${work.length > 1 ? ` and ${whole(work.length - 1)} more` : ""}. To jump there, press l.`));
      const full = items.whole(place);
      if (full) said.append(make("div", "tv-whole", full));
    }

    // --- drawing
    function later() {
      if (!waiting) requestAnimationFrame(() => ((waiting = false), draw()));
      waiting = true;
    }
    function draw() {
      width = stage.clientWidth;
      if (!width || panel.hidden) return;
      dark = luminance(getComputedStyle(box).color) > 0.4; // light text means a dark page
      const [ground, ink, , grid] = GROUNDS[dark ? "dark" : "light"];
      panel.classList.toggle("tv-dark", dark);
      panel.style.background = ground;
      panel.style.color = ink;
      const scale = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.fillStyle = ground;
      pen.fillRect(0, 0, width, height);
      pen.font = FONT;
      pen.textBaseline = "middle";
      drawAxis(pen, ink, grid);
      drawRows(pen, ground, ink);
      drawJump(pen, ground, ink);
      if (range) {
        const [left, right] = range.map((value) => within(pixel(value), -2, width + 2));
        pen.fillStyle = dark ? "#56b4e940" : "#0072b230";
        pen.fillRect(left, AXIS, right - left, height);
        pen.fillStyle = ink;
        for (const x of [left, right]) pen.fillRect(Math.round(x), AXIS, 1, height);
      }
      if (stage.scrollTop > 0) { // the axis stays above the rows
        pen.save();
        pen.beginPath();
        pen.rect(0, stage.scrollTop, width, AXIS);
        pen.clip();
        pen.fillStyle = ground;
        pen.fillRect(0, stage.scrollTop, width, AXIS);
        pen.translate(0, stage.scrollTop);
        drawAxis(pen, ink, grid);
        pen.restore();
      }
      drawLegend();
      stage.dataset.view = JSON.stringify([from, to]);
      for (const [kind, button] of Object.entries(buttons)) {
        const off = (kind === "−" || kind === "All") ? to - from >= data.span : kind === "+" && to - from <= least;
        button.setAttribute("aria-disabled", String(off));
        button.style.opacity = off ? 0.55 : 1;
      }
    }
    function drawAxis(pen, ink, grid) {
      pen.fillStyle = grid;
      pen.fillRect(0, 2, width, 6);
      pen.fillStyle = dark ? "#56b4e9" : "#0072b2";
      const [left, size] = [(from / data.span) * width, Math.max(6, ((to - from) / data.span) * width)];
      pen.fillRect(Math.min(left, width - size), 2, size, 6);
      pen.fillStyle = dark ? "#e69f00" : "#d55e00"; // hits, at their places in the whole
      for (const place of hits) pen.fillRect(Math.round((middleOf(place) / data.span) * width) - 1, 0, 2, 10);
      let free = 0;
      for (const [value, label, unit] of ticks(from, to, width, data.unit)) {
        const x = pixel(value);
        pen.fillStyle = grid;
        pen.fillRect(Math.round(x), AXIS - 6, 1, height);
        const words = `${label} ${unit}`.trim(), size = pen.measureText(words).width;
        const at = within(x - size / 2, 0, width - size);
        if (at < free) continue;
        free = at + size + 10;
        pen.fillStyle = ink;
        pen.fillText(words, at, 19);
      }
    }
    function nameOn(pen, words, color, hatched, x, y, room) {
      if (room < 26) return;
      let shown = words;
      if (pen.measureText(shown).width > room) {
        const many = Math.floor((room / pen.measureText(shown).width) * shown.length) - 1;
        if (many < 3) return;
        shown = `${words.slice(0, many)}…`;
      }
      if (hatched) {
        pen.fillStyle = color;
        pen.fillRect(x - 2, y - 7, pen.measureText(shown).width + 4, 15);
      }
      pen.fillStyle = luminance(color) > 0.18 ? "#000000" : "#ffffff";
      pen.fillText(shown, x, y + 1);
    }
    const patterns = new Map();
    function paint(pen, look) {
      const [, color, kind] = data.looks[look];
      if (!kind) return color;
      if (!patterns.has(look)) patterns.set(look, hatch(pen, kind, color, "#1a1a1a"));
      return patterns.get(look);
    }
    function drawRows(pen, ground, ink) {
      items.rows.forEach((one, row) => {
        const top = tops[row], label = labelOf(one);
        if (label) {
          pen.fillStyle = ground;
          pen.fillRect(0, top - 15, pen.measureText(label).width + 6, 14);
          pen.fillStyle = ink;
          pen.fillText(label, 2, top - 8);
        }
        const shares = new Map();
        for (const place of perRow[row]) {
          if (!seen(place)) continue;
          const left = pixel(items.start[place]), right = pixel(items.start[place] + items.length[place]);
          const [, color, kind] = data.looks[items.look[place]];
          if (right - left < NARROW) {
            if (!shares.has(items.look[place])) shares.set(items.look[place], new Float32Array(Math.ceil(width) + 1));
            const share = shares.get(items.look[place]);
            for (let x = Math.max(0, Math.floor(left)); x <= Math.min(width, Math.floor(right)); x++)
              share[x] += Math.max(Math.min(right, x + 1) - Math.max(left, x), 1e-6);
            continue;
          }
          const [x, size] = [Math.max(left, -2), Math.min(right, width + 2) - Math.max(left, -2)];
          pen.fillStyle = size > 8 ? paint(pen, items.look[place]) : color;
          pen.fillRect(x, top, size, laneHeight);
          if (size > 5) {
            pen.strokeStyle = data.share ? ground : ink;
            pen.lineWidth = 0.6;
            pen.strokeRect(x + 0.3, top + 0.3, size - 0.6, laneHeight - 0.6);
          }
          const begin = Math.max(x, 0) + 5;
          nameOn(pen, items.name(place), color, kind, begin, top + laneHeight / 2, Math.min(x + size, width) - begin - 4);
        }
        const filled = new Float32Array(Math.ceil(width) + 1);
        for (const [look, share] of shares) {
          pen.fillStyle = data.looks[look][1];
          share.forEach((part, x) => {
            if (!part) return;
            const size = Math.max(3, Math.min(1, part) * laneHeight);
            pen.fillRect(x, top + laneHeight - filled[x] - size, 1, size);
            filled[x] += size;
          });
        }
      });
      const marked = new Set(); // one mark per row and pixel, since there can be thousands of hits
      for (const place of hits) {
        const x = Math.round(pixel(within(middleOf(place), from, to))), key = items.row[place] * 1e5 + x;
        if (!seen(place) || marked.has(key)) continue;
        marked.add(key);
        pen.lineWidth = 1;
        pen.strokeStyle = ground;
        mark(pen, dark ? "#e69f00" : "#d55e00", x, tops[items.row[place]] + 7);
        pen.stroke();
      }
      for (const [place, line] of [[hovered, 1.5], [chosen, 2.5]]) {
        if (place < 0 || !seen(place)) continue;
        const top = tops[items.row[place]];
        const left = pixel(items.start[place]), right = pixel(items.start[place] + items.length[place]);
        const [x, size] = [Math.max(left, 1), Math.max(3, Math.min(right, width - 1) - Math.max(left, 1))];
        pen.lineWidth = line + 2;
        pen.strokeStyle = ground;
        pen.strokeRect(x, top, size, laneHeight);
        pen.lineWidth = line;
        pen.strokeStyle = ink;
        pen.strokeRect(x, top, size, laneHeight);
        if (size < 10) mark(pen, ink, x + size / 2, top);
      }
    }
    function mark(pen, ink, x, y) {
      pen.fillStyle = ink;
      pen.beginPath();
      pen.moveTo(x, y - 1);
      pen.lineTo(x - 5, y - 9);
      pen.lineTo(x + 5, y - 9);
      pen.closePath();
      pen.fill();
    }
    // A line from the launch to each item that it launched, if one of them is selected.
    function drawJump(pen, ground, ink) {
      const call = items.call.get(chosen) ?? (items.work.has(chosen) ? chosen : -1);
      if (call < 0) return;
      for (const place of (chosen === call ? items.work.get(call) : [chosen]).slice(0, 50)) {
        const below = tops[items.row[place]] > tops[items.row[call]];
        const ends = [[items.start[call], tops[items.row[call]] + (below ? laneHeight : 0)],
          [items.start[place], tops[items.row[place]] + (below ? 0 : laneHeight)]];
        pen.beginPath();
        ends.forEach(([value, level], end) => pen[end ? "lineTo" : "moveTo"](within(pixel(value), -1e4, 1e4), level));
        for (const [line, color] of [[4, ground], [1.5, ink]]) {
          pen.lineWidth = line;
          pen.strokeStyle = color;
          pen.stroke();
        }
      }
    }
    // --- pointer
    function at(event) {
      const frame = canvas.getBoundingClientRect();
      const x = event.clientX - frame.left, y = event.clientY - frame.top;
      if (x > width || y < stage.scrollTop + AXIS) return -1;
      let best = -1, nearestBy = Infinity;
      const rows = tops.map((_, row) => row).filter((row) => y >= tops[row] && y < (tops[row + 1] ?? height) && y < tops[row] + laneHeight + gap);
      for (const row of rows) {
        for (const place of perRow[row]) {
          const left = pixel(items.start[place]), right = pixel(items.start[place] + items.length[place]);
          const away = Math.max(left - x, x - right, 0);
          if (away > NEAR) continue;
          // At equal distance, choose the shorter one: the user can point at the longer one somewhere else.
          if (away < nearestBy || (away === nearestBy && items.length[place] < items.length[best])) [best, nearestBy] = [place, away];
        }
      }
      return best;
    }
    stage.addEventListener("scroll", later);
    const held = new Map();
    let moved = 0, anchor = null; // where a range starts
    stage.addEventListener("pointerdown", (event) => {
      if (event.button || event.target !== canvas) return; // the stage itself has the scroll bar
      held.set(event.pointerId, event.clientX);
      moved = 0;
      anchor = event.shiftKey ? valueAt(event.clientX - canvas.getBoundingClientRect().left) : null;
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) {
        if (event.pointerType === "touch") return;
        const place = at(event);
        if (place !== hovered) {
          hovered = place;
          if (!range) tell(place >= 0 ? place : chosen, false);
          later();
        }
        return;
      }
      const before = [...held.values()];
      const shift = event.clientX - held.get(event.pointerId);
      held.set(event.pointerId, event.clientX);
      moved += Math.abs(shift);
      if (held.size === 1) {
        if (moved < 4) return;
        if (anchor !== null) {
          const value = valueAt(event.clientX - canvas.getBoundingClientRect().left);
          return sum(Math.min(anchor, value), Math.max(anchor, value), false);
        }
        stage.style.cursor = "grabbing";
        view(from - (shift / width) * (to - from), to - (shift / width) * (to - from));
      } else {
        const after = [...held.values()];
        const wide = (both) => Math.max(20, Math.abs(both[0] - both[1]));
        zoom(wide(after) / wide(before), valueAt((after[0] + after[1]) / 2 - canvas.getBoundingClientRect().left));
      }
    });
    const release = (event) => {
      if (!held.delete(event.pointerId)) return;
      stage.style.cursor = "";
      if (event.type === "pointerup" && moved < 4) choose(at(event), false);
    };
    stage.addEventListener("pointerup", release);
    stage.addEventListener("pointercancel", release);
    stage.addEventListener("pointerleave", () => {
      if (hovered < 0) return;
      hovered = -1;
      if (!range) tell(chosen, false);
      later();
    });
    stage.addEventListener("dblclick", (event) => {
      const place = at(event);
      if (place >= 0) fill(place);
    });
    stage.addEventListener("wheel", (event) => {
      const frame = canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault(); // otherwise, the browser would zoom the page
        zoom(Math.exp(-within(event.deltaY, -120, 120) / 200), valueAt(event.clientX - frame.left));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        pan(event.deltaX / width);
      }
    }, { passive: false });

    // --- keys and buttons
    const keys = {
      "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), _: () => zoom(0.5),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => across(-1), ArrowDown: () => across(1),
      n: () => along(1), p: () => along(-1), Home: () => view(0, data.span), 0: () => view(0, data.span),
      w: () => zoom(2), s: () => zoom(0.5), a: () => pan(-0.2), d: () => pan(0.2), // as in Perfetto
      l: jump, m: sumUp, Enter: () => chosen >= 0 && fill(chosen),
      Escape: () => (hits.clear(), choose(-1, true)),
    };
    panel.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
      event.stopPropagation();
      if (event.key === "Enter" && event.target !== stage) return; // it presses the button
      event.preventDefault();
      keys[event.key]();
    });
    const buttons = {};
    for (const [label, name, act] of [
      ["+", "Zoom in", keys["+"]], ["−", "Zoom out", keys["-"]], ["←", "Move left", keys.ArrowLeft],
      ["→", "Move right", keys.ArrowRight], ["All", "All: show everything", keys.Home],
      ["Previous", "Previous one in the row", keys.p], ["Next", "Next one in the row", keys.n],
      ["Zoom to it", "Zoom to it: fill the width with the selected one", keys.Enter],
      ...(items.call.size ? [["Launch", "Launch: jump between a kernel and its launch", jump]] : []),
      ["Sum", "Sum: add up what runs during the selected one, or what is shown", keys.m],
    ]) {
      const button = make("button", "", label);
      button.type = "button";
      button.title = name;
      button.setAttribute("aria-label", name);
      button.addEventListener("click", (event) => {
        act();
        // JupyterLab moves the focus from a clicked button to the cell, where the keys would edit the notebook.
        if (event.detail) stage.focus({ preventScroll: true });
      });
      buttons[label] = button;
      bar.append(button);
    }
    const search = make("input");
    search.type = "search";
    search.placeholder = "Find a name";
    search.setAttribute("aria-label", "Find a name. Press Enter for the next one.");
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") (event.preventDefault(), find(search.value));
      event.stopPropagation();
    });
    bar.append(search);

    // --- legend and notes
    const swatches = data.looks.map(([label]) => {
      const entry = make("span");
      const swatch = make("canvas");
      swatch.setAttribute("aria-hidden", "true");
      [swatch.width, swatch.height] = [44, 28];
      entry.append(swatch, make("span", "", label));
      legend.append(entry);
      return swatch.getContext("2d");
    });
    function drawLegend() {
      data.looks.forEach((_, look) => {
        const pen = swatches[look];
        pen.clearRect(0, 0, 44, 28);
        pen.fillStyle = paint(pen, look);
        pen.fillRect(0, 0, 44, 28);
      });
    }
    const left = data.left ? `To limit the size of the page, ${whole(data.left)} of ${whole(data.left + items.count)} `
      + `${data.things} are left out, the smallest ones${data.share ? "" : " of the lanes whose name contains “the longest”"}. ` : "";
    const low = " If bars are narrower than two pixels, their height shows the share that they fill.";
    note.append(make("div", "", `${left}${data.axis}.${low} To zoom, use Ctrl and the mouse wheel, two fingers, or w and s. To move, drag or use a and d. To select a time, hold Shift and drag. To clear everything, press Escape.`), make("div", "", data.origin));

    panel.append(bar, stage, legend, said, note);
    box.append(panel);
    tell(-1, false);
    new ResizeObserver(later).observe(stage);
    const watch = new MutationObserver(() => (later(), setTimeout(later, 400)));
    for (const root of [document.documentElement, document.body]) watch.observe(root, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
    draw();
    return panel;
  }

  for (const box of document.querySelectorAll(".tidy-viewer:not([data-ready])")) connect(box);
})();
