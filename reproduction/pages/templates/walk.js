// Algorithm 1 on the sets of Figure 1, one step at a time: k falls, the close calls and the boundary move.
(() => {
  const holder = document.getElementById("walk");
  if (!holder) return;
  const data = JSON.parse(document.getElementById("walk-data").textContent);
  const [width, height, low] = [560, 250, 110];
  const picture = holder.querySelector("svg");
  const slider = holder.querySelector("input[type=range]");
  const readout = holder.querySelector("output");
  const play = holder.querySelector(".play");
  const across = (x) => (width * (x + 1.08)) / 2.16;
  let set, points, marks, bits, timer;

  function add(parent, tag, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text) node.textContent = text;
    parent.append(node);
    return node;
  }

  function unpack(text) {
    const bytes = atob(text);
    return set.points.map((_, i) => (bytes.charCodeAt(i >> 3) >> (7 - (i & 7))) & 1);
  }

  function curve(name, value, top) {
    const at = set.frames.map((frame) => {
      const y = height + 30 + low * (1 - Math.min(value(frame) / top, 1));
      return `${((width * frame[0]) / data.steps).toFixed(1)},${y.toFixed(1)}`;
    });
    add(picture, "polyline", {class: `curve ${name}`, points: at.join(" ")});
  }

  function choose(name) {
    set = data.sets[name];
    bits = set.frames.map((frame) => unpack(frame[4]));
    picture.replaceChildren();
    add(picture, "rect", {class: "frame", x: 0, y: 0, width, height});
    points = set.points.map(([x, side, label]) => {
      const [cx, cy] = [across(x), (height * (1.06 - side)) / 2.12];
      // Classes differ in shape as well as in colour.
      return label > 0
        ? add(picture, "circle", {class: "point positive", cx, cy, r: 4})
        : add(picture, "rect", {class: "point negative", x: cx - 3, y: cy - 3, width: 6, height: 6});
    });
    const cut = {y1: 0, y2: height};
    add(picture, "line", {class: "average", x1: across(set.average), x2: across(set.average), ...cut});
    add(picture, "rect", {class: "frame", x: 0, y: height + 30, width, height: low});
    curve("k", (frame) => frame[1], set.points.length);
    // At step 0 the score is zero and every example is wrong: the curve is scaled to the later steps.
    const worst = Math.max(1, ...set.frames.slice(1).map((frame) => frame[3]));
    curve("errors", (frame) => frame[3], worst);
    add(picture, "text", {class: "k", x: 4, y: height + 22}, `k, of ${set.points.length}`);
    add(picture, "text", {class: "errors", x: width - 4, y: height + 22, "text-anchor": "end"}, `errors, up to ${worst}`);
    marks = {
      cut: add(picture, "line", {class: "cut", ...cut}),
      now: add(picture, "line", {class: "now", y1: height + 30, y2: height + 30 + low}),
    };
    slider.max = set.frames.length - 1;
    show();
  }

  function show() {
    const place = Number(slider.value);
    const [step, k, boundary, errors] = set.frames[place];
    points.forEach((point, i) => point.classList.toggle("close", Boolean(bits[place][i])));
    const x = boundary === null ? -99 : across(Math.max(-9, Math.min(9, boundary)));
    marks.cut.setAttribute("x1", x);
    marks.cut.setAttribute("x2", x);
    const now = (width * step) / data.steps;
    marks.now.setAttribute("x1", now);
    marks.now.setAttribute("x2", now);
    const where = boundary === null ? "no boundary yet" : `boundary at ${boundary.toFixed(3)}`;
    const phase = 3 * step <= data.steps ? "all examples count" : 3 * step < 2 * data.steps ? "k falls" : "k rests";
    readout.textContent = `Step ${step} of ${data.steps}, ${phase}: k = ${k} close calls of ${set.points.length}, `
      + `${where}, ${errors} training errors (the best possible: ${set.best}).`;
    slider.setAttribute("aria-valuetext", `step ${step}, k ${k}, ${errors} errors`);
  }

  function stop() {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "Play";
  }

  play.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) === Number(slider.max)) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === Number(slider.max)) stop();
    }, 60);
  });
  slider.addEventListener("input", () => { stop(); show(); });
  for (const choice of holder.querySelectorAll("input[type=radio]")) {
    choice.addEventListener("change", () => choose(choice.value));
  }
  slider.value = slider.max;
  choose(holder.querySelector("input[type=radio]:checked").value);
})();
