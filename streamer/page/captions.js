// The captions on the page. Settled text only grows at its end, in elements of its own, so that a
// screen reader reads each piece once; text that may still change is hidden from it.

import { clock } from "./subtitles.js";

export class Captions {
  constructor(scroller, lines, latest) {
    this.scroller = scroller;
    this.lines = lines;
    this.latest = latest;
    this.finals = [];
    this.open = undefined; // {line, volatile, settled} of the open segment
    this.isFollowing = true;
    scroller.addEventListener("scroll", () => this.#notice());
    latest.addEventListener("click", () => {
      this.isFollowing = true;
      this.#follow();
    });
    new ResizeObserver(() => this.#follow()).observe(scroller);
  }

  partial(message) {
    this.#grow(message.settled, message.start);
    this.open.volatile.textContent = message.volatile;
    this.#follow();
  }

  final(message) {
    if (message.text.trim() || this.open) this.#grow(message.text, message.start);
    const { line, volatile } = this.open ?? {};
    volatile?.remove();
    if (!message.text.trim()) line?.remove();
    else this.finals.push({ ...message, text: message.text.trim() });
    this.open = undefined;
    this.#follow();
  }

  /** Drop the open segment: another session will transcribe it again. */
  forget() {
    this.open?.line.remove();
    this.open = undefined;
  }

  clear() {
    this.finals = [];
    this.open = undefined;
    this.lines.replaceChildren();
    this.isFollowing = true;
    this.latest.hidden = true;
  }

  #grow(text, start) {
    if (!this.open) {
      const line = document.createElement("p");
      line.dataset.time = clock(start);
      const volatile = document.createElement("span");
      volatile.className = "volatile";
      volatile.setAttribute("aria-hidden", "true");
      line.append(volatile);
      this.lines.append(line);
      this.open = { line, volatile, settled: "" };
    }
    if (text.length > this.open.settled.length) {
      const piece = document.createElement("span");
      piece.textContent = text.slice(this.open.settled.length);
      this.open.volatile.before(piece);
      this.open.settled = text;
    }
  }

  #follow() {
    if (this.isFollowing) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.latest.hidden = false;
  }

  #notice() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.isFollowing = scrollHeight - scrollTop - clientHeight < 60;
    if (this.isFollowing) this.latest.hidden = true;
  }
}
