// The page: one button, the captions, and a notice when something goes wrong.

import { Captions } from "./captions.js";
import { Microphone, MicrophoneError } from "./microphone.js";
import { Session, ask } from "./session.js";
import { clock, toSrt, toText, toVtt } from "./subtitles.js";
import { Wire } from "./wire.js";

const find = (id) => document.getElementById(id);
const captions = new Captions(find("captions"), find("lines"), find("latest"));
const wire = new Wire(find("wire"), find("level"));
const formats = { txt: toText, srt: toSrt, vtt: toVtt };
const types = { txt: "text/plain", srt: "application/x-subrip", vtt: "text/vtt" };

let state = "idle"; // idle, opening, live, reconnecting, ending
let microphone;
let session;
let recordedBytes = 0;
let countdown;

const labels = { idle: "Start", opening: "Starting", live: "Stop", reconnecting: "Stop", ending: "Finishing" };

function enter(next, status = "") {
  state = next;
  document.body.dataset.state = next;
  find("start").querySelector(".label").textContent = labels[next];
  find("start").disabled = next === "opening" || next === "ending";
  find("language").disabled = next !== "idle";
  find("status").textContent = status;
  const hasText = captions.finals.length > 0;
  for (const button of document.querySelectorAll("[data-format]")) button.disabled = !hasText;
  find("clear").disabled = !hasText || next !== "idle";
  clearInterval(countdown);
  keepAwake();
}

let awake;

/** Keep the screen on while there are captions to read, where the browser supports it. */
async function keepAwake() {
  const wanted = state === "live" || state === "reconnecting" || state === "ending";
  if (!wanted) {
    awake?.release();
    awake = undefined;
  } else if (!awake && document.visibilityState === "visible") {
    awake = await navigator.wakeLock?.request("screen").catch(() => undefined);
    // the browser releases it when the page is hidden
    awake?.addEventListener("release", () => (awake = undefined));
  }
}

function notice(text) {
  find("notice").textContent = text;
  find("notice").hidden = !text;
}

async function start() {
  notice("");
  enter("opening", "Waiting for the microphone");
  microphone = new Microphone(
    (packet) => {
      if (!session) return;
      session.send(packet);
      recordedBytes += packet.byteLength;
      find("clock").textContent = clock(recordedBytes / 2 / microphone.sampleRate);
    },
    () => {
      notice("The microphone was disconnected. Everything said until then is kept.");
      stop();
    },
  );
  try {
    await microphone.open();
  } catch (error) {
    if (!(error instanceof MicrophoneError)) throw error;
    microphone = undefined;
    enter("idle");
    notice(error.message);
    return;
  }
  captions.clear();
  recordedBytes = 0;
  find("hint").hidden = true;
  wire.listen(microphone);
  enter("opening", "Connecting");
  const settings = { sample_rate: microphone.sampleRate, language: find("language").value };
  session = new Session(settings, {
    live: () => {
      notice("");
      if (state !== "ending") enter("live", "Listening");
    },
    partial: (message) => captions.partial(message),
    final: (message) => {
      captions.final(message);
      for (const button of document.querySelectorAll("[data-format]")) {
        button.disabled = captions.finals.length === 0;
      }
    },
    forget: () => captions.forget(),
    waiting,
    done: finish,
    failed: (text) => {
      notice(text);
      finish();
    },
  });
}

function waiting(why, delay_s) {
  const words = {
    lost: "Connection lost. Your words are kept",
    unreachable: "The server does not answer. Your words are kept",
    busy: "The server is full",
    loading: "The model is still loading",
    draining: "The server is restarting. Your words are kept",
    ready: "Connection lost. Your words are kept",
  };
  if (state !== "ending") enter("reconnecting");
  notice(`${words[why] ?? words.lost}; trying again`);
  // a screen reader reads the sentence once, without the countdown
  const counter = document.createElement("span");
  counter.setAttribute("aria-hidden", "true");
  find("notice").append(counter);
  let left = Math.max(1, Math.round(delay_s));
  const count = () => {
    counter.textContent = left > 0 ? ` in ${left} s.` : " now.";
    left -= 1;
  };
  count();
  clearInterval(countdown);
  countdown = setInterval(count, 1000);
}

/** Stop recording; the last words still arrive. */
function stop() {
  microphone?.close();
  wire.rest();
  if (!session || state === "ending") return;
  enter("ending", "Writing the last words");
  session.end();
}

function finish() {
  microphone?.close();
  microphone = session = undefined;
  wire.rest();
  enter("idle");
  find("hint").hidden = captions.finals.length > 0;
}

function download(format) {
  const url = URL.createObjectURL(new Blob([formats[format](captions.finals)], { type: types[format] }));
  const link = document.createElement("a");
  const stamp = new Date().toISOString().slice(0, 16).replace("T", " ").replace(":", ".");
  link.download = `Captions ${stamp}.${format}`;
  link.href = url;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function resize(step) {
  const size = Math.min(2, Math.max(0.6, (Number(localStorage.getItem("size")) || 1) * step));
  localStorage.setItem("size", String(size));
  document.documentElement.style.setProperty("--size", String(size));
}

async function describe() {
  const info = await ask();
  if (info.status === "loading" || info.status === "unreachable") {
    if (state === "idle") {
      find("status").textContent = info.status === "loading" ? "The model is loading" : "No connection to the server";
    }
    setTimeout(describe, 2000);
    return;
  }
  if (state === "idle") find("status").textContent = info.status === "busy" ? "The server is full" : "";
  const names = new Intl.DisplayNames([navigator.language, "en"], { type: "language" });
  const options = (info.languages ?? [])
    .map((code) => new Option(nameOf(names, code), code))
    .sort((a, b) => a.text.localeCompare(b.text));
  const select = find("language");
  const kept = localStorage.getItem("language");
  if (options.length === 1) select.replaceChildren(...options);
  else select.append(...options);
  if ([...select.options].some((option) => option.value === kept)) select.value = kept;
}

function nameOf(names, code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

find("start").addEventListener("click", () => (state === "idle" ? start() : stop()));
find("clear").addEventListener("click", () => {
  captions.clear();
  find("hint").hidden = false;
  find("clock").textContent = "0:00";
  enter("idle");
});
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => download(button.dataset.format));
}
find("smaller").addEventListener("click", () => resize(1 / 1.15));
find("larger").addEventListener("click", () => resize(1.15));
find("language").addEventListener("change", (event) => localStorage.setItem("language", event.target.value));
document.addEventListener("visibilitychange", keepAwake);
window.addEventListener("beforeunload", (event) => {
  if (state === "live" || state === "reconnecting" || state === "ending") event.preventDefault();
});

// a key in the address is no longer needed: the server has set a cookie
if (location.search) history.replaceState(null, "", location.pathname);
resize(1);
enter("idle");
describe();
