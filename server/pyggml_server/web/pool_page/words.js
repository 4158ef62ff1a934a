
"use strict";
// Numbers to words, and elements from their parts. No state.

const N_TINTS = 8;
const SVG = "http://www.w3.org/2000/svg";

/** `3.4 MiB`; whole bytes below one KiB. */
function bytesText(nBytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (nBytes >= 1024 && i < units.length - 1) {
    nBytes /= 1024;
    i += 1;
  }
  return `${i === 0 ? nBytes : nBytes.toFixed(1)} ${units[i]}`;
}

/** `12 ms`, `3.4 s`, `2 min 5 s`. */
function secondsText(seconds) {
  if (seconds < 1) {
    const ms = seconds * 1000;
    return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  }
  if (seconds < 60) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** `1 cell`, `2 cells`. */
function countText(n, noun) {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

/** `slot-3`: the class that gives an element its slot's colour. Colours repeat, numbers do not. */
function slotClass(slotId) {
  return `slot-${slotId % N_TINTS}`;
}

/** An HTML element; `text` is set as text, never as markup. */
function element(tag, { className = "", text = "", children = [] } = {}) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== "") {
    made.textContent = text;
  }
  made.append(...children);
  return made;
}

/** An SVG element with these attributes. */
function shape(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  if (text !== "") {
    made.textContent = text;
  }
  return made;
}

/** Sets an element's text if it is another one, so that a screen reader hears changes only. */
function say(id, text) {
  sayIn(document.getElementById(id), text);
}

/** The same for an element. */
function sayIn(where, text) {
  if (where.textContent !== text) {
    where.textContent = text;
  }
}
