
// The replicas of Ray Serve, each with what its pool holds and the address of its page. Asks every two seconds; the
// only part of its page with state.

const POLL_MS = 2000;
let timer = null;

/** One replica: a link to its pool, and how full that is. */
function replicaItem({ id, pool, n_slots: nSlots, n_running: nRunning, n_parked: nParked }) {
  const link = element("a", { text: id });
  link.href = `pool?${new URLSearchParams({ replica: id })}`;
  const cells = `${pool.n_cells_used} of ${pool.n_cells} cells`;
  const text = `${cells}, ${nRunning} of ${nSlots} slots, ${nParked} parked, ${pool.n_deferred} in line`;
  return element("li", { children: [link, element("span", { text })] });
}

async function poll() {
  timer = null;
  if (document.hidden) {
    return;
  }
  await ask("replicas.json").then(
    ({ replicas }) => {
      say("status", countText(replicas.length, "replica"));
      document.getElementById("replicas").replaceChildren(...replicas.map(replicaItem));
    },
    (error) => say("status", whyNot(error)),
  );
  again();
}

function again(delayMs = POLL_MS) {
  clearTimeout(timer);
  timer = setTimeout(poll, delayMs);
}

onKey(() => again(0));
document.addEventListener("visibilitychange", () => again(0));
poll();
