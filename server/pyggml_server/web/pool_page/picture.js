
// The pool as squares, the parked chats next to it, the totals and the table of slots. Draws; keeps nothing.

const N_SQUARES = 256;

/**
 * Shares `n` squares out by weight, all of them, and at least one for each weight above 0: where there are more of
 * those than squares, more are given than there are.
 */
function shareSquares(weights, n) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const exact = weights.map((weight) => (total > 0 ? (weight / total) * n : 0));
  const shares = exact.map((share, i) => (weights[i] > 0 ? Math.max(1, Math.floor(share)) : 0));
  let left = n - shares.reduce((sum, share) => sum + share, 0);
  const byLack = [...weights.keys()].filter((i) => weights[i] > 0);
  while (left !== 0 && byLack.length > 0) {
    byLack.sort((a, b) => exact[b] - shares[b] - (exact[a] - shares[a]));
    const at = left > 0 ? byLack[0] : byLack.findLast((i) => shares[i] > 1);
    if (at === undefined) {
      break;
    }
    shares[at] += Math.sign(left);
    left -= Math.sign(left);
  }
  return shares;
}

/** Who holds cells: `{slot, nCells}`, in order of slots; `slot` null for cells that no slot accounts for. */
function holdersOf(shown) {
  const holders = shown.slots.filter((slot) => slot.n_cells > 0).map((slot) => ({ slot, nCells: slot.n_cells }));
  const nKnown = holders.reduce((sum, holder) => sum + holder.nCells, 0);
  if (shown.pool.n_cells_used > nKnown) {
    holders.push({ slot: null, nCells: shown.pool.n_cells_used - nKnown });
  }
  return holders;
}

/** Whether its cells are those of an earlier request, kept for the next one. */
function isKept(slot) {
  return slot.state === "idle" || slot.state === "started";
}

function squareOf({ slot }) {
  if (slot === null) {
    return { className: "cell", text: "?" };
  }
  const look = isKept(slot) ? "kept" : "held";
  return { className: `cell ${look} ${slotClass(slot.id)}`, text: String(slot.id) };
}

function drawCells(shown) {
  const holders = holdersOf(shown);
  const nFree = Math.max(0, shown.pool.n_cells - shown.pool.n_cells_used);
  const shares = shareSquares([...holders.map((holder) => holder.nCells), nFree], Math.min(N_SQUARES, shown.pool.n_cells));
  const squares = holders.flatMap((holder, i) => Array(shares[i]).fill(squareOf(holder)));
  squares.push(...Array(shares.at(-1)).fill({ className: "cell", text: "" }));
  const grid = document.getElementById("cells");
  while (grid.children.length > squares.length) {
    grid.lastChild.remove();
  }
  while (grid.children.length < squares.length) {
    grid.append(element("span"));
  }
  squares.forEach((square, i) => {
    grid.children[i].className = square.className;
    grid.children[i].textContent = square.text;
  });
  say("cells-text", cellsText(holders, nFree, shown.pool));
}

function cellsText(holders, nFree, pool) {
  const parts = holders.map(({ slot, nCells }) => {
    if (slot === null) {
      return `${nCells} shared`;
    }
    return `slot ${slot.id} ${isKept(slot) ? "keeps" : "holds"} ${nCells}`;
  });
  return `${pool.n_cells_used} of ${countText(pool.n_cells, "cell")} in use: ${[...parts, `${nFree} free`].join(", ")}.`;
}

function drawParked(shown) {
  const { held_bytes: held, limit_bytes: limit } = shown.pool;
  const memory = document.getElementById("memory");
  memory.hidden = limit === 0;
  memory.max = Math.max(limit, 1);
  memory.value = held;
  const parked = shown.slots.filter((slot) => slot.is_preempted);
  const line = parked.sort((a, b) => a.is_held - b.is_held || b.waiting_s - a.waiting_s);
  const heldText = `${countText(line.length, "slot")} parked, ${bytesText(held)} of ${bytesText(limit)} held`;
  say("memory-text", limit === 0 ? "Preemption is off: no chat is ever parked." : heldText);
  document.getElementById("parked").replaceChildren(...line.map(parkedItem));
}

function parkedItem(slot, place) {
  const where = slot.is_on_disk ? "in a file, " : "";
  const waiting = `${slot.is_transferring ? "being copied, " : where}waiting ${secondsText(slot.waiting_s)}`;
  const next = place === 0 ? ", next to come back" : "";
  return element("li", {
    className: slotClass(slot.id),
    children: [
      element("strong", { text: `slot ${slot.id}${slot.is_held ? ", until it is called back" : next}` }),
      `${waiting}, ${slot.parked_bytes > 0 ? bytesText(slot.parked_bytes) : "to be computed again"}, ${countText(slot.n_tokens, "cell")}, ${countText(slot.n_preempted, "park")} so far`,
    ],
  });
}

function drawTotals({ pool, slots, totals }) {
  const nParked = slots.filter((slot) => slot.is_preempted).length;
  const nStarted = slots.filter((slot) => slot.state === "started").length;
  const nRunning = slots.filter((slot) => slot.state !== "idle").length - nParked - nStarted;
  const numbers = {
    "cells in use": `${Math.round((100 * pool.n_cells_used) / Math.max(1, pool.n_cells))} %`,
    running: nRunning,
    parked: nParked,
    "yet to start": pool.n_deferred + nStarted,
    parks: totals.preemptions_total,
    restores: totals.restores_total,
    rotations: totals.rotations_total,
    recomputes: totals.recomputes_total,
    finished: totals.requests_finished_total,
    failed: totals.requests_failed_total,
  };
  const tiles = Object.entries(numbers).map(([name, value]) =>
    element("div", { children: [element("dt", { text: name }), element("dd", { text: String(value) })] }),
  );
  document.getElementById("totals").replaceChildren(...tiles);
}

/** The table, with buttons to park by hand if a POST comes to this pool. */
function drawSlots({ slots }, hasButtons) {
  const rows = document.getElementById("slots");
  while (rows.children.length > slots.length) {
    rows.lastChild.remove();
  }
  while (rows.children.length < slots.length) {
    rows.append(slotRow()); // kept from one drawing to the next: a button that is replaced loses its focus
  }
  slots.forEach((slot, i) => fillRow(rows.children[i], slot, hasButtons));
}

function slotRow() {
  const name = element("th");
  name.scope = "row";
  const button = element("button");
  button.type = "button";
  const cells = Array.from({ length: 6 }, () => element("td"));
  return element("tr", { children: [name, ...cells, element("td", { children: [button] })] });
}

function fillRow(row, slot, hasButtons) {
  const parkedText = slot.parked_ms > 0 ? secondsText(slot.parked_ms / 1000) : "";
  const state = slot.state.replaceAll("_", " ");
  const values = [slot.id, state, slot.id_task ?? "", slot.n_cells, slot.n_decoded, slot.n_preempted, parkedText];
  values.forEach((value, i) => sayIn(row.children[i], String(value)));
  row.className = slotClass(slot.id);
  const button = row.lastChild.firstChild;
  button.hidden = !hasButtons || ["idle", "started", "wait_other"].includes(slot.state);
  button.dataset.action = slot.is_held ? "unpark" : "park";
  button.dataset.slot = slot.id;
  sayIn(button, slot.is_held ? "Call back" : "Park");
  button.setAttribute("aria-label", `${button.textContent} slot ${slot.id}`);
}
