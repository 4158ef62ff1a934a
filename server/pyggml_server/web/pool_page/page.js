
// Asks for the numbers twice a second, draws them, and says so when it cannot. The only part with state.

const POLL_MS = 500;
// a router has a pool for each model; to look at one shall not load it
const MODEL = new URLSearchParams(location.search).get("model");
const NO_LOAD = MODEL === null ? {} : { autoload: "false" };
// and Ray Serve has one for each replica
const REPLICA = new URLSearchParams(location.search).get("replica");
const NUMBERS = `pool.json${queryOf(MODEL, REPLICA)}`;
let isPaused = false;
let latest = null;
let timer = null;

function queryOf(model, replica) {
  if (model !== null) {
    return `?${new URLSearchParams({ model, ...NO_LOAD })}`;
  }
  return replica === null ? "" : `?${new URLSearchParams({ replica })}`;
}

function draw() {
  if (latest === null) {
    return;
  }
  document.getElementById("main").hidden = false;
  drawTotals(latest);
  drawCells(latest);
  drawParked(latest);
  drawTimeline(latest);
  drawGaps(latest);
  drawSlots(latest, REPLICA === null); // a POST would come to any replica
}

/** Parks a slot or calls it back, and says what came of it. */
async function act({ action, slot }) {
  const done = action === "park" ? "is parked until it is called back" : "is called back";
  const address = `slots/${slot}?${new URLSearchParams({ action, ...NO_LOAD })}`;
  const body = JSON.stringify({ model: MODEL ?? undefined }); // by which a router knows whose slot it is
  const said = await ask(address, "POST", body).then(() => `Slot ${slot} ${done}.`, whyNot);
  say("by-hand", said);
  again(0);
}

/** The numbers, with `age_s` in each event and second of gaps: how long ago it was when the server answered. */
function withAges(shown) {
  const events = shown.events.map((event) => ({ ...event, age_s: shown.now_s - event.at_s }));
  const gapSeconds = shown.gap_seconds.map((second) => ({ ...second, age_s: shown.now_s - second.ends_at_s }));
  return { ...shown, events, gap_seconds: gapSeconds };
}

async function poll() {
  timer = null;
  if (isPaused || document.hidden) {
    return;
  }
  const [status, numbers] = await ask(NUMBERS).then(
    (numbers) => [numbers.is_asleep ? "Live. The model sleeps until the next request." : "Live", withAges(numbers)],
    (error) => [whyNot(error), latest],
  );
  if (isPaused) {
    return; // meanwhile
  }
  latest = numbers;
  say("status", status);
  draw();
  again();
}

function again(delayMs = POLL_MS) {
  clearTimeout(timer);
  timer = setTimeout(poll, delayMs);
}

document.getElementById("pause").addEventListener("click", ({ target }) => {
  isPaused = !isPaused;
  target.setAttribute("aria-pressed", String(isPaused));
  say("status", isPaused ? "Paused" : "Connecting");
  again(0);
});
onKey(() => again(0));
document.getElementById("slots").addEventListener("click", ({ target }) => {
  if (target.dataset.action !== undefined) {
    act(target.dataset);
  }
});
document.addEventListener("visibilitychange", () => again(0));
window.addEventListener("resize", draw);
if (MODEL !== null || REPLICA !== null) {
  say("of-model", MODEL ?? REPLICA);
  say("all-models", MODEL === null ? "All replicas" : "All models");
  document.getElementById("all-models").hidden = false;
}
poll();
