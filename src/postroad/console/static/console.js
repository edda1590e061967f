// Keyboard, live parts, uploads and small comforts. Except for imports, every page works without this script.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const typing = (target) => target.closest("input, textarea, select, [contenteditable]");

// Dark or light
function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// Parts of a page that are fetched repeatedly: data-live is the address, data-every the interval in seconds.
function keepLive(part) {
  const pause = Number(part.dataset.every) * 1000;
  const turn = async () => {
    if (part.dataset.until && part.querySelector("[data-done]")) return;
    const busy = document.hidden || part.contains(document.activeElement) || !getSelection().isCollapsed;
    if (!busy) {
      try {
        const answer = await fetch(part.dataset.live, { headers: { "X-Fragment": "1" }, cache: "no-store" });
        if (answer.status === 401) return location.reload();
        part.innerHTML = await answer.text(); // the server has escaped everything
        part.classList.remove("stale");
        prepare(part);
      } catch {
        part.classList.add("stale");
      }
    }
    setTimeout(turn, pause);
  };
  if (!(part.dataset.until && part.querySelector("[data-done]"))) setTimeout(turn, pause);
}

async function upload(input) {
  const file = input.files[0];
  if (!file) return;
  const answer = await fetch(input.dataset.upload, {
    method: "POST",
    body: file,
    headers: { "X-Csrf": document.querySelector("meta[name=csrf]").content, "Content-Type": "application/octet-stream" },
  });
  location.href = answer.ok ? (await answer.json()).next : location.href;
}

function prepare(root) {
  for (const box of all("[data-all]", root)) {
    box.addEventListener("change", () => {
      for (const each of all("tbody input[type=checkbox]", box.closest("form"))) each.checked = box.checked;
    });
  }
  for (const button of all("[data-confirm]", root)) {
    button.addEventListener("click", (event) => {
      if (!confirm(button.dataset.confirm)) event.preventDefault();
    });
  }
}

// The path of a login, see theme.js
document.querySelector("form[data-login]")?.addEventListener("submit", (event) => {
  const secret = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0"));
  event.target.elements.base.value = `/~${secret.join("")}`;
  localStorage.setItem("home", event.target.elements.base.value);
});

// Rows
let row = -1;
function move(step) {
  const rows = all("tr[data-row]");
  if (!rows.length) return;
  row = Math.max(0, Math.min(rows.length - 1, row + step));
  rows.forEach((each, place) => each.classList.toggle("current", place === row));
  rows[row].scrollIntoView({ block: "nearest" });
}

let pending = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const link = (selector) => document.querySelector(selector)?.click();
  if (pending) {
    pending = false;
    link(`nav a[data-key="${CSS.escape(event.key)}"]`);
    return;
  }
  const keys = {
    g: () => (pending = true),
    j: () => move(1),
    k: () => move(-1),
    t: toggleTheme,
    "]": () => link("[data-next]"),
    "[": () => link("[data-previous]"),
    "?": () => document.getElementById("help").showModal(),
    "/": () => document.querySelector("[data-slash]")?.focus(),
    Enter: () => {
      const current = document.querySelector("tr.current");
      if (current) location.href = current.dataset.row;
    },
  };
  if (keys[event.key]) {
    keys[event.key]();
    if (event.key !== "Enter") event.preventDefault();
  }
});

document.querySelector("[data-theme-toggle]").addEventListener("click", toggleTheme);
document.querySelector("[data-help]").addEventListener("click", () => document.getElementById("help").showModal());
all("[data-go]").forEach((each) => each.addEventListener("change", () => (location.href = each.value)));
all("[data-upload]").forEach((each) => each.addEventListener("change", () => upload(each)));
all("[data-live]").forEach(keepLive);
prepare(document);
document.querySelector("nav a[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
