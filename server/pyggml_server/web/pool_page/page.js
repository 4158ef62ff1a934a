
// Asks for the numbers twice a second, draws them, and says so when it cannot. The only part with state.

const POLL_MS = 500;
const KEY_NAME = "pyggml-api-key"; // in this tab's storage only
let isPaused = false;
let latest = null;
let timer = null;

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
  drawSlots(latest);
}

/** The numbers, or an Error whose message tells the reader what is wrong. */
async function ask() {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const response = await fetch("pool.json", { headers, cache: "no-store" });
  document.getElementById("key-form").hidden = response.status !== 401;
  if (!response.ok) {
    throw new Error((await response.json()).error.message);
  }
  return withAges(await response.json());
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
  const [status, numbers] = await ask().then(
    (numbers) => [numbers.is_asleep ? "Live. The model sleeps until the next request." : "Live", numbers],
    // fetch throws a TypeError where nobody answers
    (error) => [error instanceof TypeError ? "The server does not answer. Retrying." : error.message, latest],
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
document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, document.getElementById("key").value);
  again(0);
});
document.addEventListener("visibilitychange", () => again(0));
window.addEventListener("resize", draw);
poll();
