// A session with /v1/stream (docs/protocol.md) that outlives its connections. Audio is kept until its
// text is final. After a broken connection the session is resumed where it stopped, or begun again from
// the end of the last final, so that no word is lost.

const KEPT_S = 120; // audio kept for a broken connection, s
const STABLE_MS = 10000; // a connection that lasted this long resets the delays
const MAX_DELAY_S = 30;

/** Return the address of a path beside this page, behind any proxy. */
export function address(path, scheme = location.protocol) {
  const url = new URL(path, document.baseURI);
  url.search = url.hash = "";
  url.protocol = scheme;
  return url;
}

export class Session {
  /**
   * handlers: live(), partial(message), final(message), forget(), done(), failed(text), and
   * waiting(why, seconds) while it reconnects.
   */
  constructor(settings, handlers) {
    this.settings = settings;
    this.handlers = handlers;
    this.bytesPerSecond = 2 * settings.sample_rate;
    this.packets = []; // {offset, data}, offsets in bytes from the start of the recording
    this.total = 0; // bytes recorded
    this.sent = 0; // byte up to which everything is on the open connection
    this.base = 0; // byte at which the server's session began; its times count from there
    this.finalEnd = 0; // byte up to which all text is final
    this.id = undefined;
    this.seq = -1;
    this.attempts = 0;
    this.isEnding = this.isOver = this.isReady = false;
    this.#connect();
  }

  /** Send a packet of audio. */
  send(data) {
    if (this.isEnding) return;
    this.packets.push({ offset: this.total, data });
    this.total += data.byteLength;
    const oldest = Math.max(this.finalEnd, this.total - KEPT_S * this.bytesPerSecond);
    while (this.packets[0].offset + this.packets[0].data.byteLength <= Math.min(oldest, this.sent)) {
      this.packets.shift();
    }
    while (this.total - this.packets[0].offset > KEPT_S * this.bytesPerSecond) this.packets.shift();
    this.#flush();
  }

  /** End the audio: the rest of the text follows, then done(). */
  end() {
    this.isEnding = true;
    if (this.isReady) this.socket.send('{"type":"end"}');
    else if (!this.id) this.#finish(() => this.handlers.done());
  }

  #connect() {
    this.isReady = false;
    const socket = new WebSocket(address("v1/stream", location.protocol.replace("http", "ws")));
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.#say(this.id ? { type: "resume", session: this.id, seq: this.seq } : this.#start());
    };
    socket.onmessage = (event) => {
      if (socket === this.socket) this.#receive(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (socket === this.socket && !this.isOver) this.#broken(event, opened);
    };
  }

  #start() {
    return { type: "start", resumable: true, words: true, ...this.settings };
  }

  #say(message) {
    this.socket.send(JSON.stringify(message));
  }

  #receive(message) {
    if (message.seq !== undefined) this.seq = Math.max(this.seq, message.seq);
    switch (message.type) {
      case "ready":
        this.id = message.session;
        this.sent = this.base + (message.received_bytes ?? 0);
        this.isReady = true;
        this.stable = setTimeout(() => (this.attempts = 0), STABLE_MS);
        this.handlers.live();
        this.#flush();
        if (this.isEnding) this.#say({ type: "end" });
        break;
      case "partial":
        this.handlers.partial(this.#shift(message));
        break;
      case "final":
        this.finalEnd = Math.max(this.finalEnd, this.#byte(message.end));
        this.handlers.final(this.#shift(message));
        break;
      case "done":
        if (this.isEnding) this.#finish(() => this.handlers.done());
        else this.#restart(this.#byte(message.duration)); // the server stops; the next one continues
        break;
      case "error":
        if (message.code === "unknown_session") {
          this.#restart(this.finalEnd);
          this.#say(this.#start());
        } else if (message.fatal) this.error = message;
        break;
    }
  }

  /** Begin another session at this byte of the recording, since the old one is gone. */
  #restart(byte) {
    this.base = Math.max(byte, this.packets[0]?.offset ?? this.total);
    this.base -= this.base % 2;
    this.id = undefined;
    this.seq = -1;
    this.isReady = false;
    this.handlers.forget();
  }

  #byte(seconds) {
    return this.base + 2 * Math.round((seconds * this.bytesPerSecond) / 2);
  }

  #shift(message) {
    const shift = this.base / this.bytesPerSecond;
    if (!shift) return message;
    const move = (part) => ({ ...part, start: part.start + shift, end: part.end + shift });
    return { ...move(message), words: message.words?.map(move) };
  }

  #flush() {
    if (!this.isReady) return;
    for (const { offset, data } of this.packets) {
      const skip = Math.max(0, this.sent - offset);
      if (skip >= data.byteLength) continue;
      if (offset > this.sent && this.sent > this.base) {
        this.socket.send(new ArrayBuffer(offset - this.sent)); // no longer kept: silence in its place keeps times right
      }
      this.socket.send(skip ? data.slice(skip) : data);
      this.sent = offset + data.byteLength;
    }
  }

  async #broken(event, opened) {
    clearTimeout(this.stable);
    this.isReady = false;
    const isRefusal = event.code === 1008 || (event.code >= 4000 && event.code < 5000);
    if (isRefusal || (this.error && ![1001, 1011, 1012, 1013].includes(event.code))) {
      const why = this.error?.message ?? event.reason;
      this.#finish(() => this.handlers.failed(`The server ended the session${why ? `: ${why}` : ""}.`));
      return;
    }
    let why = opened ? "lost" : "unreachable";
    const growth = 2 ** this.attempts++;
    let delay_s = Math.min(MAX_DELAY_S, 0.5 * growth);
    if (this.error?.retry_after_s) {
      why = "busy";
      delay_s = Math.max(delay_s, this.error.retry_after_s);
    } else if (!opened) {
      const found = await ask();
      if (this.isOver) return;
      if (found.status === "refused") {
        this.#finish(() => this.handlers.failed("This server needs a key, and this page has no valid one."));
        return;
      }
      why = found.status;
      // a server that answers and refuses: from 2 s, growing from the first time on
      if (why !== "unreachable") delay_s = Math.min(MAX_DELAY_S, 2 * growth);
    }
    this.error = undefined;
    // with jitter, or all pages reconnect in the same instant
    delay_s *= 0.75 + 0.5 * Math.random();
    this.handlers.waiting(why, delay_s);
    this.retry = setTimeout(() => this.#connect(), delay_s * 1000);
  }

  #finish(notify) {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.retry);
    clearTimeout(this.stable);
    this.socket.close(1000);
    this.packets = [];
    notify();
  }
}

/** Ask for the server's status: browsers do not say why a socket was refused. */
export async function ask() {
  try {
    const response = await fetch(address("v1/info"), { cache: "no-store" });
    if (response.status === 401 || response.status === 403) return { status: "refused" };
    return await response.json();
  } catch {
    return { status: "unreachable" };
  }
}
