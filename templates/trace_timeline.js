for (const box of document.querySelectorAll(".timeline")) {
  const trace = JSON.parse(document.getElementById(box.dataset.block).textContent);
  const canvas = box.querySelector("canvas"), told = box.querySelector(".told");
  const hint = told.textContent, pen = canvas.getContext("2d");
  const LANE = 20, GAP = 4, BOARD = 22, AXIS = 24, SHORTEST = 1;
  const count = trace.begins.length;
  let from = trace.view[0], to = trace.view[1], width = 0, left = 0, picked = -1;
  const colours = {};
  const lanes = [];
  let height = AXIS, board = null;
  for (const track of trace.tracks) {
    const heads = trace.boards.length > 1 && track.board !== board;
    if (heads) height += BOARD;
    board = track.board;
    lanes.push({ y: height, board: heads ? trace.boards[board] : "" });
    height += LANE + GAP;
  }
  // Slices of a track do not overlap, so those in sight are found by bisection.
  const byTrack = trace.tracks.map(function () { return []; });
  for (let at = 0; at < count; at++) byTrack[trace.track[at]].push(at);

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "dim", "line", "grid", "card", "link", "npu", "mark"]) {
      colours[name] = style.getPropertyValue("--" + name).trim();
    }
    colours.series = Array.from({ length: 8 }, function (_, number) {
      return style.getPropertyValue("--series-" + number).trim();
    });
  }
  function timeText(microseconds) {
    const size = Math.abs(microseconds);
    if (size >= 1e6) return (microseconds / 1e6).toPrecision(4) + " s";
    return size >= 1e3 ? (microseconds / 1e3).toPrecision(4) + " ms" : microseconds.toFixed(1) + " µs";
  }
  function x(time) { return left + (time - from) / (to - from) * (width - left); }
  function timeAt(place) { return from + (place - left) / (width - left) * (to - from); }
  function firstInSight(own) {
    let low = 0, high = own.length;
    while (low < high) {
      const middle = (low + high) >> 1, at = own[middle];
      if (trace.begins[at] + trace.lengths[at] < from) low = middle + 1; else high = middle;
    }
    return low;
  }
  function colourOf(at) {
    const kind = trace.kinds[trace.kind[at]];
    if (kind === "wait") return colours.grid;
    if (kind === "message") return colours.link;
    if (kind === "operator") return colours.npu;
    return colours.series[Math.max(0, trace.frame[at]) % 8];
  }
  function fitted(text, room) {
    if (pen.measureText(text).width <= room) return text;
    let size = text.length;
    while (size > 0 && pen.measureText(text.slice(0, size) + "…").width > room) size--;
    return size > 0 ? text.slice(0, size) + "…" : "";
  }
  function drawAxis() {
    const step = niceStep((to - from) / Math.max(2, (width - left) / 110));
    pen.fillStyle = colours.dim;
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const place = Math.round(x(time)) + 0.5;
      pen.strokeStyle = colours.grid;
      pen.beginPath(); pen.moveTo(place, AXIS - 4); pen.lineTo(place, height); pen.stroke();
      const text = axisText(time, step);
      if (place + pen.measureText(text).width + 3 < width) pen.fillText(text, place + 3, AXIS - 8);
    }
  }
  function niceStep(least) {
    const power = Math.pow(10, Math.floor(Math.log10(least)));
    for (const factor of [1, 2, 5]) if (factor * power >= least) return factor * power;
    return 10 * power;
  }
  function axisText(time, step) {
    const unit = step >= 1e6 ? [1e6, " s"] : step >= 1e3 ? [1e3, " ms"] : [1, " µs"];
    return String(Math.round(time / unit[0] * 1000) / 1000) + unit[1];
  }
  function drawSlice(at, y) {
    const begin = Math.max(left, x(trace.begins[at]));
    const end = Math.min(width, Math.max(x(trace.begins[at] + trace.lengths[at]), begin + SHORTEST));
    if (end <= begin) return;
    const kind = trace.kinds[trace.kind[at]];
    const inset = kind === "wait" ? 6 : 0;
    pen.fillStyle = colourOf(at);
    pen.fillRect(begin, y + inset, end - begin, LANE - 2 * inset);
    if (trace.critical[at]) {
      pen.fillStyle = colours.mark;
      pen.fillRect(begin, y + LANE, end - begin, 3);
    }
    if (at === picked) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(begin, y, end - begin, LANE);
      pen.lineWidth = 1;
    }
    if (end - begin > 24 && kind !== "wait") {
      pen.fillStyle = colours.card;
      const text = kind === "operator" ? trace.names[trace.name[at]] : String(trace.frame[at]);
      pen.fillText(fitted(text, end - begin - 6), begin + 3, y + 14);
    }
  }
  let drawn = 0;
  function draw() {
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    drawAxis();
    drawn = 0;
    trace.tracks.forEach(function (track, number) {
      const lane = lanes[number], own = byTrack[number];
      pen.fillStyle = colours.ink;
      if (lane.board) {
        pen.font = "bold 12px system-ui, sans-serif";
        pen.fillText(fitted(lane.board, width - 8), 4, lane.y - 7);
        pen.font = "12px system-ui, sans-serif";
      }
      pen.fillText(fitted(track.name, left - 10), 4, lane.y + 14);
      let ahead = -1;
      for (let place = firstInSight(own); place < own.length; place++) {
        const at = own[place];
        if (trace.begins[at] > to) break;
        const end = x(trace.begins[at] + trace.lengths[at]);
        // What would end within a pixel that is drawn already is not seen.
        if (end < ahead && at !== picked) continue;
        drawSlice(at, lane.y);
        ahead = Math.floor(end) + 1;
        drawn++;
      }
    });
    box.dataset.drawn = String(drawn);
  }
  function resize() {
    width = canvas.clientWidth;
    left = Math.min(190, width * 0.3);
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + 6 + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((height + 6) * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    readColours();
    draw();
  }
  function show(begin, end) {
    const least = 1, most = trace.end - trace.begin;
    const span = Math.min(most, Math.max(least, end - begin));
    from = Math.min(Math.max(begin, trace.begin), trace.end - span);
    to = from + span;
    draw();
  }
  function zoom(factor, place) {
    const middle = place === undefined ? (from + to) / 2 : timeAt(place);
    show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }
  function sliceAt(place, y) {
    const number = lanes.findIndex(function (lane) { return y >= lane.y && y < lane.y + LANE + GAP; });
    if (number < 0 || place < left) return -1;
    const own = byTrack[number], time = timeAt(place), near = 4 * (to - from) / (width - left);
    let best = -1, distance = near;
    for (let index = firstInSight(own); index < own.length; index++) {
      const at = own[index], begin = trace.begins[at], end = begin + trace.lengths[at];
      if (begin > time + near) break;
      const away = time < begin ? begin - time : time > end ? time - end : 0;
      if (away < distance || (away === 0 && distance > 0)) { best = at; distance = away; }
    }
    return best;
  }
  function pick(at) {
    if (at === picked) return;
    picked = at;
    if (at < 0) {
      told.textContent = hint;
    } else {
      const track = trace.tracks[trace.track[at]], frame = trace.frame[at];
      const lasts = trace.lengths[at] > 0 ? " for " + timeText(trace.lengths[at]) : "";
      const name = trace.names[trace.name[at]];
      told.textContent = track.name + (track.name.endsWith(name) ? "" : ": " + name) +
        (frame >= 0 ? ", frame " + frame : "") + lasts + ", from " + timeText(trace.begins[at]) +
        (trace.critical[at] ? ", on the critical path" : "");
    }
    draw();
  }

  const held = new Map();
  let moved = 0;
  function placeOf(event) {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }
  canvas.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX / (width - left) * (to - from);
      show(from + by, to + by);
    } else {
      zoom(Math.exp(event.deltaY * 0.002), placeOf(event)[0]);
    }
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", function (event) {
    held.set(event.pointerId, placeOf(event));
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", function (event) {
    const place = placeOf(event), before = held.get(event.pointerId);
    if (before === undefined) {
      pick(sliceAt(place[0], place[1]));
      return;
    }
    const others = Array.from(held.entries()).filter(function (each) { return each[0] !== event.pointerId; });
    if (others.length) {
      const other = others[0][1][0];
      const was = Math.max(10, Math.abs(before[0] - other)), is = Math.max(10, Math.abs(place[0] - other));
      zoom(was / is, (place[0] + other) / 2);
    } else {
      const by = (before[0] - place[0]) / (width - left) * (to - from);
      show(from + by, to + by);
    }
    moved += Math.abs(place[0] - before[0]) + Math.abs(place[1] - before[1]);
    held.set(event.pointerId, place);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, function (event) {
      held.delete(event.pointerId);
      const place = placeOf(event);
      if (name === "pointerup" && moved < 5) pick(sliceAt(place[0], place[1]));
    });
  }
  canvas.addEventListener("keydown", function (event) {
    const by = (to - from) / 8;
    const moves = {
      ArrowLeft: [from - by, to - by], ArrowRight: [from + by, to + by],
      "+": [from + by, to - by], "-": [from - by, to + by], Home: [trace.begin, trace.end],
    };
    if (moves[event.key] === undefined) return;
    show(moves[event.key][0], moves[event.key][1]);
    event.preventDefault();
  });
  for (const button of box.querySelectorAll("button[data-do]")) {
    button.addEventListener("click", function () {
      if (button.dataset.do === "all") show(trace.begin, trace.end);
      else zoom(button.dataset.do === "in" ? 0.5 : 2);
    });
  }
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);
  resize();
}
