
// Asks this server, with the API key that the reader gave in this tab. Keeps that key only.

const KEY_NAME = "pyggml-api-key"; // in this tab's storage only

/** The JSON at an address of this server, or an Error whose message tells the reader what is wrong. */
async function ask(address, method = "GET", body = undefined) {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const response = await fetch(address, { method, headers, body, cache: "no-store" });
  document.getElementById("key-form").hidden = response.status !== 401;
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.error.message);
  }
  return answer;
}

/** An error of `ask` in words. fetch throws a TypeError where nobody answers. */
function whyNot(error) {
  return error instanceof TypeError ? "The server does not answer. Retrying." : error.message;
}

/** Calls back when the reader has given a key. */
function onKey(given) {
  document.getElementById("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY_NAME, document.getElementById("key").value);
    given();
  });
}
