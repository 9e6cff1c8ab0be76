// Ticks the countdowns by the server's clock and offers single keys. The pages work without it;
// nothing here moves a row or sends anything that a visible button does not send.
"use strict";

(() => {
  const units = (document.body.dataset.units || "%d d|%d h|%d min|%d s").split("|");
  const serverNow = Date.parse(document.body.dataset.serverNow || "");
  const offset = Number.isNaN(serverNow) ? 0 : serverNow - Date.now();
  const NOTICE_MS = 60_000;

  function spanWords(milliseconds) {
    const seconds = Math.max(Math.floor(milliseconds / 1000), 0);
    const parts = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24,
                   Math.floor(seconds / 60) % 60, seconds % 60];
    const first = parts.findIndex((part) => part > 0);
    if (first < 0) return units[3].replace("%d", "0");
    const shown = first === 2 && parts[2] >= 10 ? [2] : [first, first + 1];
    return shown.filter((i) => i < 4 && (i === first || parts[i] > 0))
      .map((i) => units[i].replace("%d", parts[i])).join(" ");
  }

  let timer = 0;

  function tick() {
    clearTimeout(timer);
    const now = Date.now() + offset;
    let nearest = Infinity;
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const at = Date.parse(time.dateTime);
      const isPast = at <= now;
      nearest = Math.min(nearest, Math.abs(at - now));
      if (time.dataset.tick === "left" && isPast && time.dataset.afterZero) {
        const clock = time.closest(".clock");
        clock.className = "clock level-overdue";
        clock.querySelector(".mark").textContent = "▲";
        clock.querySelector(".words").textContent = time.dataset.afterZero;
        time.textContent = "";
        delete time.dataset.tick;
        continue;
      }
      const words = spanWords(time.dataset.tick === "left" ? at - now : now - at);
      if (time.textContent !== words) time.textContent = words;
    }
    if (nearest < Infinity) timer = setTimeout(tick, nearest < 3_600_000 ? 1000 : 30_000);
  }

  function noticeClock() {
    const notice = document.querySelector("[data-clock-notice]");
    if (!notice || Math.abs(offset) <= NOTICE_MS) return;
    const words = offset > 0 ? notice.dataset.behind : notice.dataset.ahead;
    notice.textContent = words.replace("{span}", spanWords(Math.abs(offset)));
    notice.hidden = false;
  }

  const keysDialog = document.getElementById("keys");
  const KEYS_OFF = "escalations.keys.off";

  function keysAreOn() {
    try { return localStorage.getItem(KEYS_OFF) === null; } catch { return true; }
  }

  function rows() { return [...document.querySelectorAll("[data-row]")]; }

  function currentRow() { return document.activeElement.closest("[data-row]"); }

  function moveBy(step) {
    const all = rows();
    if (!all.length) return;
    const here = all.indexOf(currentRow());
    const next = here < 0 ? 0 : Math.min(Math.max(here + step, 0), all.length - 1);
    all[next].querySelector("[data-open]").focus();
  }

  // Acts on the focused row; without one, on the page's own button for that key.
  function press(key) {
    const row = currentRow();
    if (row && key === "o") return row.querySelector("[data-open]").click();
    if (row && key === "a") return row.querySelector("[data-acknowledge]")?.click();
    const target = document.querySelector(`[data-key="${key}"]`);
    if (!target) return;
    if (target.tagName === "SUMMARY") {
      target.parentElement.open = true;
      target.parentElement.querySelector("select, textarea, input:not([type=hidden])").focus();
    } else {
      target.click();
    }
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
    if (event.target.closest("input, select, textarea, dialog[open]")) return;
    if (!keysAreOn()) return;
    if (event.key === "?" && keysDialog) keysDialog.showModal();
    else if (event.key === "j" || event.key === "k") moveBy(event.key === "j" ? 1 : -1);
    else if ("oanrebpu".includes(event.key)) press(event.key);
    else return;
    event.preventDefault();
  }

  const keysSwitch = document.querySelector("[data-keys-switch]");
  if (keysSwitch) {
    keysSwitch.checked = keysAreOn();
    keysSwitch.addEventListener("change", () => {
      try {
        if (keysSwitch.checked) localStorage.removeItem(KEYS_OFF);
        else localStorage.setItem(KEYS_OFF, "1");
      } catch { keysSwitch.checked = true; }
    });
  }
  const keysHelp = document.querySelector("[data-keys-help]");
  if (keysHelp) {
    keysHelp.hidden = false;
    keysHelp.addEventListener("click", () => keysDialog.showModal());
  }
  document.addEventListener("keydown", onKey);

  // Numbers change where they stand; no row comes, goes or moves under a pointer or the focus.
  const live = document.querySelector("[data-live]");
  const liveSwitch = document.querySelector("[data-live-switch]");
  let liveTimer = 0;

  async function refresh() {
    clearTimeout(liveTimer);
    if (!live || !liveSwitch.checked || document.hidden) return;
    if (!live.contains(document.activeElement) && !live.matches(":hover")) {
      try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        if (answer.ok && !answer.redirected) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          live.replaceChildren(...page.querySelector("[data-live]").childNodes);
          tick();
        }
      } catch { /* The "as of" line keeps saying how old the numbers are. */ }
    }
    waitForRefresh();
  }

  // Jittered, so that many open windows do not ask at the same instant.
  function waitForRefresh() {
    if (live) liveTimer = setTimeout(refresh, live.dataset.live * 1000 * (0.8 + 0.4 * Math.random()));
  }

  if (live) {
    liveSwitch.parentElement.hidden = false;
    liveSwitch.addEventListener("change", refresh);
    waitForRefresh();
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    tick();
    refresh();
  });
  noticeClock();
  tick();
})();
