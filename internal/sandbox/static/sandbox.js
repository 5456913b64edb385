// The sandbox's page: asks for new cards each second, and puts rules.
"use strict";
const $ = (id) => document.getElementById(id);
const cards = $("cards");

async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) options.body = JSON.stringify(body);
  const answer = await fetch("/sandbox/" + path, options);
  if (answer.ok) {
    if (method !== "GET") $("error").hidden = true;
    return answer;
  }
  const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
  $("error").textContent = problem.detail;
  $("error").hidden = false;
  throw new Error(problem.detail);
}

// A failure has been shown by then; there is nothing more to do about it.
const safely = (act) => (event) => act(event).catch(() => {});

// Received messages.

function show() {
  const channel = $("show").value;
  let seen = 0;
  for (const card of cards.children) {
    card.hidden = channel !== "" && card.dataset.channel !== channel;
    seen += card.hidden ? 0 : 1;
  }
  $("empty").hidden = seen > 0;
}

async function poll() {
  const last = Number(cards.dataset.last);
  try {
    const answer = await fetch("/sandbox/cards?after=" + last);
    const now = Number(answer.headers.get("X-Sandbox-Last"));
    if (now < last) return location.reload();
    const html = await answer.text();
    if (html.trim() !== "") {
      cards.insertAdjacentHTML("afterbegin", html);
      while (cards.children.length > Number(cards.dataset.max)) cards.lastElementChild.remove();
      show();
    }
    cards.dataset.last = now;
    $("live").textContent = "live";
    $("live").classList.remove("off");
    await rules();
  } catch {
    $("live").textContent = "not reachable";
    $("live").classList.add("off");
  }
}

// One poll ends before the next begins, or cards would come twice.
async function keepPolling() {
  if (!document.hidden) await poll();
  setTimeout(keepPolling, 1000);
}

$("show").addEventListener("change", show);
$("clear").addEventListener("click", safely(async () => {
  await call("DELETE", "messages");
  cards.replaceChildren();
  show();
}));

// Faults.

// What a status is called differs with mail alone.
const kinds = {
  down: (smtp) => ({ status: smtp ? 421 : 503 }),
  throttle: (smtp) => (smtp ? { status: 451, body: "4.7.1 try again later" } : { status: 429, headers: { "Retry-After": "2" } }),
  refuse: (smtp) => (smtp ? { status: 550, body: "5.1.1 no such mailbox" } : { status: 400 }),
  auth: (smtp) => (smtp ? { status: 535, body: "5.7.8 authentication failed" } : { status: 401 }),
  slow: () => ({ delay: "5s" }),
  before: () => ({ drop: "before" }),
  after: () => ({ drop: "after" }),
};

let current = "";

async function rules() {
  const text = await (await call("GET", "faults")).text();
  if (text === current) return;
  current = text;
  const list = JSON.parse(text).items;
  $("norules").hidden = list.length > 0;
  $("rules").replaceChildren(...list.map(item));
}

function item(rule, i, list) {
  const a = rule.answer;
  const what = [a.status, a.drop && "drop " + a.drop, a.delay && "after " + a.delay].filter(Boolean).join(", ") || "headers";
  const times = rule.times ? ` \u00d7${rule.times}` : ", always";
  const li = document.createElement("li");
  const text = document.createElement("span");
  text.textContent = `${rule.provider || "*"} \u2192 ${rule.to || "*"}: ${what}${times}`;
  const off = document.createElement("button");
  off.type = "button";
  off.className = "quiet";
  off.textContent = "remove";
  off.addEventListener("click", safely(() => put(list.filter((_, k) => k !== i))));
  li.append(text, off);
  return li;
}

async function put(list) {
  await call("PUT", "faults", list);
  await rules();
}

$("fault").addEventListener("submit", safely(async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const provider = form.get("provider");
  const rule = { provider, to: form.get("to") || "*", answer: kinds[form.get("kind")](provider === "smtp") };
  const times = Number(form.get("times"));
  if (times > 0) rule.times = times;
  const list = JSON.parse(await (await call("GET", "faults")).text()).items;
  await put([...list, rule]);
}));

// Receipts.

const receipts = $("receipts");

async function readReceipts() {
  const now = await (await call("GET", "receipts")).json();
  for (const [name, value] of Object.entries(now)) {
    const field = receipts.elements[name];
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
  }
}

receipts.addEventListener("submit", safely(async (event) => {
  event.preventDefault();
  const f = receipts.elements;
  await call("PUT", "receipts", {
    final: f.final.value, delay: f.delay.value, repeat: Number(f.repeat.value),
    shuffle: f.shuffle.checked, before_answer: f.before_answer.checked,
  });
  await readReceipts();
}));

safely(readReceipts)();
keepPolling();
