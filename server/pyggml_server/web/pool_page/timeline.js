
// The two pictures over time, one above the other on the same axis, and the events in words. Draws; keeps nothing.

const WINDOW_S = 60;
const N_EVENTS_SHOWN = 8;
const LANE_PX = 24;
const LEFT_PX = 52;
const RIGHT_PX = 12;
const AXIS_PX = 20;
const GAPS_PX = 140;
const KIND_TEXT = { park: "parked", restore: "restored", refusal: "park refused", end: "ended" };
// a chat that leaves without its state, to be computed again, copies nothing
const isCopy = (event) => (event.kind === "park" || event.kind === "restore") && event.n_bytes > 0;

/** Where `ageS` seconds ago lies in a picture of that width. */
function xOf(ageS, width) {
  return LEFT_PX + (1 - Math.min(ageS, WINDOW_S) / WINDOW_S) * (width - LEFT_PX - RIGHT_PX);
}

/** From when to when a slot was parked, as ages in seconds: `[{fromS, toS}]`, oldest first. */
function parkedSpans(events, slot) {
  const spans = [];
  let fromS = null;
  for (const event of events.filter((event) => event.id_slot === slot.id)) {
    if (event.kind === "park") {
      fromS = event.age_s + event.took_ms / 1000; // it is told when its copy has ended
    } else if (fromS !== null && event.kind !== "refusal") {
      spans.push({ fromS, toS: event.age_s });
      fromS = null;
    }
  }
  if (fromS !== null && slot.is_preempted) {
    spans.push({ fromS, toS: 0 });
  }
  return spans.filter((span) => span.toS <= WINDOW_S);
}

function drawTimeline(shown) {
  const svg = document.getElementById("lanes");
  const width = svg.clientWidth;
  const recent = shown.events.filter((event) => event.age_s <= WINDOW_S);
  const lanes = shown.slots.filter((slot) => slot.state !== "idle" || recent.some((event) => event.id_slot === slot.id));
  const height = lanes.length * LANE_PX + AXIS_PX;
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const shapes = lanes.flatMap((slot, i) => laneShapes(shown.events, slot, i * LANE_PX + LANE_PX / 2, width));
  svg.replaceChildren(hatchPattern(), ...shapes, ...axis(width, height));
  const nParks = recent.filter((event) => event.kind === "park").length;
  const nRestores = recent.filter((event) => event.kind === "restore").length;
  say("lanes-text", `${countText(nParks, "park")} and ${countText(nRestores, "restore")} in the last minute.`);
  const latest = shown.events.slice(-N_EVENTS_SHOWN).reverse();
  document.getElementById("events").replaceChildren(...latest.map((event) => element("li", { text: eventText(event) })));
}

function eventText(event) {
  const copied = isCopy(event) ? `, ${bytesText(event.n_bytes)} in ${secondsText(event.took_ms / 1000)}` : "";
  const what = `slot ${event.id_slot} ${KIND_TEXT[event.kind]}, ${countText(event.n_cells, "cell")}${copied}`;
  return `${secondsText(event.age_s)} ago: ${what}: ${event.reason}`;
}

function laneShapes(events, slot, y, width) {
  const shapes = [
    shape("text", { x: 0, y: y + 4 }, `slot ${slot.id}`),
    shape("line", { class: "rule", x1: LEFT_PX, x2: width - RIGHT_PX, y1: y, y2: y }),
  ];
  for (const { fromS, toS } of parkedSpans(events, slot)) {
    const x = xOf(fromS, width);
    const box = { x, y: y - 8, width: Math.max(2, xOf(toS, width) - x), height: 16 };
    shapes.push(shape("rect", { ...box, class: `lane ${slotClass(slot.id)}` }), shape("rect", { ...box, class: "hatched" }));
  }
  const marks = events.filter((event) => event.id_slot === slot.id && event.age_s <= WINDOW_S);
  return [...shapes, ...marks.map((event) => eventMark(event.kind, xOf(event.age_s, width), y))];
}

function eventMark(kind, x, y) {
  const paths = {
    park: `M${x - 5} ${y - 5}h10l-5 10z`,
    restore: `M${x - 5} ${y + 5}h10l-5 -10z`,
    end: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`,
    refusal: `M${x} ${y - 6}l6 6l-6 6l-6 -6z`,
  };
  return shape("path", { class: kind === "refusal" || kind === "end" ? "mark open" : "mark", d: paths[kind] });
}

function hatchPattern() {
  const pattern = shape("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("line", { class: "hatch", x1: 0, y1: 0, x2: 0, y2: 6 }));
  return pattern;
}

function axis(width, height) {
  const labels = [60, 45, 30, 15, 0].map((ageS) => {
    const anchor = ageS === 0 ? "end" : ageS === WINDOW_S ? "start" : "middle";
    const text = ageS === 0 ? "now" : `${ageS} s ago`;
    return shape("text", { class: "axis", x: xOf(ageS, width), y: height - 4, "text-anchor": anchor }, text);
  });
  // five labels do not fit in a row on a phone
  return width < 420 ? labels.filter((_, i) => i % 2 === 0) : labels;
}

function drawGaps(shown) {
  const svg = document.getElementById("gaps");
  const width = svg.clientWidth;
  svg.setAttribute("height", GAPS_PX);
  svg.setAttribute("viewBox", `0 0 ${width} ${GAPS_PX}`);
  const seconds = shown.gap_seconds.filter((second) => second.age_s < WINDOW_S);
  const topMs = Math.max(1, ...seconds.map((second) => second.worst_ms));
  const yOf = (ms) => GAPS_PX - AXIS_PX - (ms / topMs) * (GAPS_PX - AXIS_PX - 14);
  const copyAges = shown.events.filter(isCopy).map((event) => event.age_s);
  const bars = seconds.flatMap((second) => gapBar(second, copyAges, yOf, width));
  svg.replaceChildren(
    shape("line", { class: "rule", x1: LEFT_PX, x2: width - RIGHT_PX, y1: yOf(0), y2: yOf(0) }),
    shape("line", { class: "rule", x1: LEFT_PX, x2: width - RIGHT_PX, y1: yOf(topMs), y2: yOf(topMs) }),
    shape("text", { class: "axis", x: 0, y: yOf(topMs) + 4 }, secondsText(topMs / 1000)),
    ...bars,
    ...axis(width, GAPS_PX),
  );
  say("gaps-text", gapsText(seconds));
}

function gapBar(second, copyAges, yOf, width) {
  const x = xOf(second.age_s + 1, width);
  const box = { x, y: yOf(second.worst_ms), width: Math.max(1, xOf(second.age_s, width) - x - 1), height: yOf(0) - yOf(second.worst_ms) };
  const shapes = [shape("rect", { ...box, class: "bar" })];
  if (copyAges.some((ageS) => ageS >= second.age_s && ageS < second.age_s + 1)) {
    shapes.push(shape("rect", { ...box, class: "hatched" }));
  }
  const meanY = yOf(second.mean_ms);
  shapes.push(shape("line", { class: "mean", x1: x, x2: x + box.width, y1: meanY, y2: meanY }));
  return shapes;
}

function gapsText(seconds) {
  const nGaps = seconds.reduce((sum, second) => sum + second.n_gaps, 0);
  if (nGaps === 0) {
    return "No slot generated two tokens in the last minute.";
  }
  const sumMs = seconds.reduce((sum, second) => sum + second.mean_ms * second.n_gaps, 0);
  const worst = seconds.reduce((a, b) => (b.worst_ms > a.worst_ms ? b : a));
  return `${countText(nGaps, "gap")} in the last minute: mean ${secondsText(sumMs / nGaps / 1000)}, longest ${secondsText(
    worst.worst_ms / 1000,
  )}, ${secondsText(Math.max(0, worst.age_s))} ago.`;
}
