// Keeps what is on the screen up to date, tells what a box of a drawing is, and follows a tail.
// What holds: nothing is asked for a section that is not in view, or while the page is hidden; of each section one request
// runs at a time. Text of the cluster arrives as HTML in which it is escaped, or is set as text: never as markup.

const RETRY_MS_MAX = 30000;
const TAIL_KEPT_MAX = 200;
const TAIL_PAUSE_MS = 250;
const REQUEST_TIMEOUT_MS = 35000;

const freshness = document.getElementById("freshness");
const failing = new Set();

function say(name, problem) {
  if (problem) failing.add(name); else failing.delete(name);
  const late = failing.size > 0;
  const text = late ? "Not up to date: the placement driver does not answer. Trying again …" : "";
  if (freshness.textContent !== text) freshness.textContent = text;
  freshness.classList.toggle("late", late);
}

async function ask(address, tag) {
  const headers = tag ? { "If-None-Match": tag } : {};
  return fetch(address, { headers, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
}

function parsed(text) {
  return new DOMParser().parseFromString(text, "text/html").body;
}

// ---- sections that are looked at again

function replaceInside(section, text) {
  const inside = section.querySelector(".inside");
  const active = document.activeElement;
  const key = inside.contains(active) ? active.dataset.key : undefined;
  if (inside.contains(active) && !key && active.matches("input")) return false; // somebody types
  const told = inside.querySelector(".tell")?.dataset.about;
  const open = [...inside.querySelectorAll("details[open]")].map((each) => each.id);
  inside.replaceChildren(...parsed(text).childNodes);
  for (const id of open) inside.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  if (told) tell(inside.querySelector(`[data-key="${CSS.escape(told)}"]`));
  if (key) inside.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  return true;
}

function follow(section) {
  const every_ms = Number(section.dataset.every) * 1000;
  let tag = null, inView = false, running = false, timer = null, failures = 0;

  function plan(delay_ms) {
    clearTimeout(timer);
    timer = inView && !document.hidden ? setTimeout(look, delay_ms) : null;
  }

  async function look() {
    if (running) return;
    running = true;
    try {
      const answer = await ask(section.dataset.part, tag);
      if (answer.status !== 304) {
        const text = await answer.text();
        if (replaceInside(section, text)) tag = answer.ok ? answer.headers.get("ETag") : null;
      }
      failures = answer.status >= 500 ? failures + 1 : 0;
      say(section.id, "");
    } catch {
      failures += 1;
      say(section.id, "no answer");
    } finally {
      running = false;
      plan(Math.min(RETRY_MS_MAX, every_ms * 2 ** Math.min(failures, 5)));
    }
  }

  new IntersectionObserver((entries) => {
    const now = entries[entries.length - 1].isIntersecting;
    if (now === inView) return;
    inView = now;
    plan(every_ms);
  }).observe(section);
  document.addEventListener("visibilitychange", () => plan(document.hidden ? 0 : 50));
}

// ---- drawings

function tell(box) {
  if (!box) return;
  const inside = box.closest(".inside");
  const place = inside.querySelector(".tell");
  if (!place) return;
  for (const each of inside.querySelectorAll(".box.told")) each.classList.remove("told");
  box.classList.add("told");
  place.dataset.about = box.dataset.key;
  place.textContent = box.getAttribute("aria-label");
}

function walk(event) {
  const box = event.target.closest?.(".box");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const across = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!box || (!step && !across)) return;
  event.preventDefault();
  const lanes = [...box.closest(".axis").querySelectorAll(".boxes")].filter((each) => each.querySelector(".box"));
  const boxes = [...box.closest(".boxes").querySelectorAll(".box")];
  let next = boxes[boxes.indexOf(box) + (step ?? 0)];
  if (across) {
    const lane = lanes[lanes.indexOf(box.closest(".boxes")) + across];
    const at = parseFloat(box.getAttribute("x"));
    next = lane && [...lane.querySelectorAll(".box")].reduce((best, each) =>
      Math.abs(parseFloat(each.getAttribute("x")) - at) < Math.abs(parseFloat(best.getAttribute("x")) - at) ? each : best);
  }
  if (!next) return;
  box.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

for (const kind of ["pointerover", "focusin", "click"]) {
  document.addEventListener(kind, (event) => tell(event.target.closest?.(".box")));
}
document.addEventListener("keydown", walk);

// ---- the live tail

function followTail(section) {
  let inView = false, running = false, failures = 0, paused = false;
  const button = () => section.querySelector(".pause");
  const atEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < 40;

  async function look() {
    if (running) return;
    running = true;
    while (inView && !paused && !document.hidden) {
      const list = section.querySelector(".tail");
      const address = new URL(section.dataset.part, location.href);
      if (list?.dataset.next) address.searchParams.set("offset", list.dataset.next);
      try {
        const answer = await ask(address);
        const text = await answer.text();
        if (answer.ok) {
          take(list, parsed(text), answer.headers.get("Next-Offset"));
          failures = 0;
        } else {
          refuse(list, answer.status, parsed(text));
          failures += 1;
        }
        say(section.id, "");
      } catch {
        failures += 1;
        say(section.id, "no answer");
      }
      const pause_ms = failures ? 1000 * 2 ** Math.min(failures, 5) : TAIL_PAUSE_MS;
      await new Promise((done) => setTimeout(done, Math.min(RETRY_MS_MAX, pause_ms)));
    }
    running = false;
  }

  function refuse(list, status, body) {
    const note = section.querySelector(".tail-note");
    if (note) note.textContent = body.textContent.replace(/\s+/g, " ").trim();
    else section.querySelector(".inside").replaceChildren(...body.childNodes);
    if (list && status < 500) { // its offsets are gone: begin with the last records
      delete list.dataset.next;
      list.replaceChildren();
    }
  }

  function take(list, body, next) {
    if (!list) {
      section.querySelector(".inside").replaceChildren(...body.childNodes);
      watchButton();
      return;
    }
    const stay = !atEnd(list);
    const note = section.querySelector(".tail-note");
    const usual = body.querySelector(".tail-note").textContent;
    if (note.textContent !== usual) note.textContent = usual;
    list.append(...body.querySelectorAll(".tail > li"));
    while (list.children.length > TAIL_KEPT_MAX) list.firstElementChild.remove();
    if (next !== null) list.dataset.next = next;
    section.querySelector(".tail-empty").hidden = list.children.length > 0;
    if (!stay) list.scrollTop = list.scrollHeight;
  }

  function watchButton() {
    button()?.addEventListener("click", () => {
      paused = !paused;
      button().setAttribute("aria-pressed", String(paused));
      button().textContent = paused ? "Go on" : "Pause";
      look();
    });
    const list = section.querySelector(".tail");
    if (list) list.scrollTop = list.scrollHeight;
  }

  watchButton();
  new IntersectionObserver((entries) => {
    inView = entries[entries.length - 1].isIntersecting;
    look();
  }).observe(section);
  document.addEventListener("visibilitychange", look);
}

for (const section of document.querySelectorAll("[data-part]")) {
  if (section.id === "section-tail") followTail(section);
  else if (Number(section.dataset.every) > 0) follow(section);
}
