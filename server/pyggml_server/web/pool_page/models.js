
// The models of a router, each with the address of its pool. Asks every two seconds; the only part of its page with
// state.

const POLL_MS = 2000;
let timer = null;

/** One model: a link to its pool, and what the router says of it. */
function modelItem({ id, status }) {
  const link = element("a", { text: id });
  link.href = `pool?${new URLSearchParams({ model: id })}`;
  return element("li", { children: [link, element("span", { text: status.value })] });
}

async function poll() {
  timer = null;
  if (document.hidden) {
    return;
  }
  await ask("models").then(
    ({ data }) => {
      say("status", countText(data.length, "model"));
      document.getElementById("models").replaceChildren(...data.map(modelItem));
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
